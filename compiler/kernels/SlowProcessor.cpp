//===- SlowProcessor.cpp - A processor as slow beside its disks as the paper's ---===//
//
// Mowry, Demke and Krieger (1996) measured on a processor of 16.7 MHz: beside the same
// disks today's takes next to no time to compute on what is read. This pass makes
// every operation of a program take so many cycles longer, whatever it is compiled with
// otherwise: each element of a vector is an operation, as it was on that processor. It
// runs at the end, when loops are in their last form, and changes no value and no access
// to memory.
//
// Libraries and the run-time layer are as fast as ever, and so is the kernel.
//
// CYCLES: how many, defined where this is compiled.
//
//===----------------------------------------------------------------------===//

#include "Versions.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/PassManager.h"
#include "llvm/Passes/PassBuilder.h"

using namespace llvm;

namespace {

/// Operations that a processor with registers of 32 bits, as the paper's, makes for one of
/// a wider integer; pairs of them hold a floating-point number.
uint64_t operations(const Instruction &I) {
  const Type *T = isa<StoreInst>(I) ? I.getOperand(0)->getType() : I.getType();
  const auto *Vector = dyn_cast<FixedVectorType>(T);
  const uint64_t Elements = Vector ? Vector->getNumElements() : 1;
  const auto *Integer = dyn_cast<IntegerType>(T->getScalarType());
  const uint64_t Words = Integer ? (Integer->getBitWidth() + 31) / 32 : 1;
  return Elements * (I.getOpcode() == Instruction::Mul ? Words * Words : Words);
}

uint64_t operations(const BasicBlock &Block) {
  uint64_t Count = 0;
  for (const Instruction &I : Block)
    if (!isa<PHINode>(I) && !I.isDebugOrPseudoInst() && !I.isLifetimeStartOrEnd())
      Count += operations(I);
  return Count;
}

/// So many rounds of a subtraction and a jump, together a cycle each, at the end of a block.
/// No assembly: flang has nothing to read it with.
void wait(BasicBlock &Block, uint32_t Rounds) {
  BasicBlock *Rest = Block.splitBasicBlock(Block.getTerminator());
  BasicBlock *Loop = BasicBlock::Create(Block.getContext(), "slow", Block.getParent(), Rest);
  Block.getTerminator()->setSuccessor(0, Loop);
  IRBuilder<> Builder(Loop);
  PHINode *Left = Builder.CreatePHI(Builder.getInt32Ty(), 2);
  Value *Next = Builder.CreateSub(Left, Builder.getInt32(1));
  Builder.CreateCondBr(Builder.CreateICmpNE(Next, Builder.getInt32(0)), Loop, Rest);
  Left->addIncoming(Builder.getInt32(Rounds), &Block);
  Left->addIncoming(Next, Loop);
}

class SlowPass : public PassInfoMixin<SlowPass> {
public:
  PreservedAnalyses run(Module &M, ModuleAnalysisManager &) {
    for (Function &F : M) {
      SmallVector<BasicBlock *, 64> Blocks;
      for (BasicBlock &Block : F)
        if (!Block.getTerminatingMustTailCall()) // nothing may come between it and its return
          Blocks.push_back(&Block);
      for (BasicBlock *Block : Blocks)
        wait(*Block, uint32_t(CYCLES * operations(*Block)));
    }
    return PreservedAnalyses::none();
  }
};

} // namespace

extern "C" LLVM_ATTRIBUTE_WEAK PassPluginLibraryInfo llvmGetPassPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "slow-processor", "1", [](PassBuilder &Builder) {
            Builder.registerOptimizerLastEPCallback([](LAST_PASSES(Passes, Level)) {
              if (Level != OptimizationLevel::O0)
                Passes.addPass(SlowPass());
            });
          }};
}
