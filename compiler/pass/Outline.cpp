//===- Outline.cpp - Nests with strips in functions of their own ----------===//
//
// A nest that is there twice leaves the function by a call where it has strips. What
// stays is the nest as it was, in a function that keeps its registers for it: a line's
// transform of a few iterations was a sixth slower with its other version beside it.
//
// Late, when strips are vectorized: what is known about addresses (restrict, say) is
// lost on the way into a function.
//
//===----------------------------------------------------------------------===//

#include "Outline.h"

#include "llvm/IR/Dominators.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/Transforms/Utils/CodeExtractor.h"

using namespace llvm;
using namespace runahead;

static bool calls(const User *U, StringRef Name) {
  const auto *Call = dyn_cast<CallInst>(U);
  const Function *Called = Call ? Call->getCalledFunction() : nullptr;
  return Called && Called->getName() == Name;
}

/// Is this what a nest is told by, through casts or not? Names and metadata may have
/// been lost on the way here.
static bool isFrame(const Value *Local) {
  return any_of(Local->users(), [](const User *U) {
    return isa<BitCastInst>(U) || isa<GetElementPtrInst>(U) ? isFrame(U) : calls(U, "ra_begin_2");
  });
}

bool runahead::isOutlinable(const BasicBlock &Block) {
  // Which handler is for an exception, an index tells that each function has its own of;
  // what compares it (llvm.eh.typeid.for) would stay in the other function.
  if (Block.isEHPad() || isa<InvokeInst>(Block.getTerminator()))
    return false;
  for (const Instruction &I : Block) {
    // The program may use it after the nest, when another function's frame is gone.
    if (isa<AllocaInst>(I) && !isFrame(&I))
      return false;
    const auto *Call = dyn_cast<CallBase>(&I);
    if (!Call)
      continue;
    // setjmp: what it returns to a second time must still be there.
    if (Call->hasFnAttr(Attribute::ReturnsTwice) || Call->isMustTailCall())
      return false;
    switch (Call->getIntrinsicID()) {
    case Intrinsic::addressofreturnaddress:
    case Intrinsic::eh_dwarf_cfa:
    case Intrinsic::frameaddress:
    case Intrinsic::get_dynamic_area_offset:
    case Intrinsic::localaddress:
    case Intrinsic::localescape:
    case Intrinsic::localrecover:
    case Intrinsic::read_register:
    case Intrinsic::read_volatile_register:
    case Intrinsic::returnaddress:
    case Intrinsic::sponentry:
#if LLVM_VERSION_MAJOR >= 22
    case Intrinsic::stackaddress:
#endif
    case Intrinsic::stackrestore:
    case Intrinsic::stacksave:
    case Intrinsic::vacopy:
    case Intrinsic::vaend:
    case Intrinsic::vastart:
    case Intrinsic::write_register:
      return false;
    default:
      break;
    }
  }
  return true;
}

/// Where only nests that are told to the run-time layer come to, of the two ways on
/// from a marked branch; null where the branch has become another one.
static BasicBlock *begins(BranchInst *Branch, const DominatorTree &DT) {
  for (BasicBlock *To : Branch->successors()) {
    if (!To->getSinglePredecessor())
      continue;
    SmallVector<BasicBlock *, 16> Region;
    DT.getDescendants(To, Region);
    for (BasicBlock *Block : Region)
      for (Instruction &I : *Block)
        if (calls(&I, "ra_tick"))
          return To;
  }
  return nullptr;
}

/// Is what lies in a frame, or the frame, used in the nest only? `Addresses` of it that
/// were taken before the nest (a loop around it leaves them alone) could be taken there.
static bool isUsedIn(ArrayRef<BasicBlock *> Region, const Value *Place,
                     SmallVectorImpl<Instruction *> &Addresses) {
  for (const User *U : Place->users()) {
    auto *I = const_cast<Instruction *>(cast<Instruction>(U));
    if (is_contained(Region, I->getParent()))
      continue;
    if (!isa<GetElementPtrInst>(I) && !isa<BitCastInst>(I))
      return false;
    Addresses.push_back(I);
    if (!isUsedIn(Region, I, Addresses))
      return false;
  }
  return true;
}

/// The frames go along with those who use them. What else is used in the nest only
/// stays: its address may be kept until after the nest.
static void takeFrames(Function &F, ArrayRef<BasicBlock *> Region) {
  SmallVector<Instruction *, 16> Own;
  for (Instruction &I : F.getEntryBlock()) {
    SmallVector<Instruction *, 16> Taken{&I};
    if (isa<AllocaInst>(I) && isFrame(&I) && isUsedIn(Region, &I, Taken))
      Own.append(Taken);
  }
  Instruction *Begin = &*Region.front()->getFirstInsertionPt();
  for (Instruction *I : Own)
    I->moveBefore(*Begin->getParent(), Begin->getIterator());
}

static bool outline(BranchInst *Branch) {
  Function &F = *Branch->getFunction();
  DominatorTree DT(F);
  BasicBlock *Begin = begins(Branch, DT);
  if (!Begin)
    return false;
  SmallVector<BasicBlock *, 16> Region;
  DT.getDescendants(Begin, Region);
  if (!all_of(Region, [](const BasicBlock *Block) { return isOutlinable(*Block); }))
    return false;
  // The first one is where the function will begin.
  std::swap(Region.front(), *std::find(Region.begin(), Region.end(), Begin));
  CodeExtractor Extractor(Region, &DT, /*AggregateArgs=*/false, nullptr, nullptr, nullptr,
                          /*AllowVarArgs=*/false, /*AllowAlloca=*/true OUTLINE_SUFFIX);
  if (!Extractor.isEligible())
    return false;
  takeFrames(F, Region);
  CodeExtractorAnalysisCache Cache(F);
  Function *Outlined = Extractor.extractCodeRegion(Cache);
  if (!Outlined)
    return false;
  // It has its attributes from the function that it was in, and nothing can be both.
  Outlined->removeFnAttr(Attribute::AlwaysInline);
  Outlined->addFnAttr(Attribute::NoInline);
  Instruction *First = &*Outlined->getEntryBlock().getFirstInsertionPt();
  SmallVector<AllocaInst *, 4> Frames;
  for (Instruction &I : instructions(*Outlined))
    if (auto *Frame = dyn_cast<AllocaInst>(&I); Frame && isFrame(Frame))
      Frames.push_back(Frame);
  for (AllocaInst *Frame : Frames)
    if (Frame != First)
      Frame->moveBefore(*First->getParent(), First->getIterator());
  return true;
}

PreservedAnalyses OutlinePass::run(Module &M, ModuleAnalysisManager &) {
  SmallVector<BranchInst *, 8> Marked;
  for (Function &F : M)
    for (Instruction &I : instructions(F))
      if (auto *Branch = dyn_cast<BranchInst>(&I); Branch && Branch->getMetadata(BEGIN_MARK)) {
        Branch->setMetadata(BEGIN_MARK, nullptr);
        if (Branch->isConditional())
          Marked.push_back(Branch);
      }
  bool Changed = false;
  for (BranchInst *Branch : Marked)
    Changed |= outline(Branch);
  return Changed ? PreservedAnalyses::none() : PreservedAnalyses::all();
}
