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
#include "llvm/Transforms/Utils/CodeExtractor.h"

using namespace llvm;
using namespace runahead;

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
        if (auto *Call = dyn_cast<CallInst>(&I))
          if (const Function *Called = Call->getCalledFunction();
              Called && Called->getName() == "ra_tick")
            return To;
  }
  return nullptr;
}

/// The frames go along with those who use them.
static void takeFrames(Function &F, ArrayRef<BasicBlock *> Region) {
  SmallVector<AllocaInst *, 4> Own;
  for (Instruction &I : F.getEntryBlock())
    if (auto *Frame = dyn_cast<AllocaInst>(&I))
      if (!Frame->use_empty() && all_of(Frame->users(), [&](User *U) {
            return is_contained(Region, cast<Instruction>(U)->getParent());
          }))
        Own.push_back(Frame);
  for (AllocaInst *Frame : Own)
    Frame->moveBefore(*Region.front(), Region.front()->getFirstInsertionPt());
}

static bool outline(BranchInst *Branch) {
  Function &F = *Branch->getFunction();
  DominatorTree DT(F);
  BasicBlock *Begin = begins(Branch, DT);
  if (!Begin)
    return false;
  SmallVector<BasicBlock *, 16> Region;
  DT.getDescendants(Begin, Region);
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
  Outlined->addFnAttr(Attribute::NoInline);
  Instruction *First = &*Outlined->getEntryBlock().getFirstInsertionPt();
  SmallVector<AllocaInst *, 4> Frames;
  for (Instruction &I : instructions(*Outlined))
    if (auto *Frame = dyn_cast<AllocaInst>(&I))
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
