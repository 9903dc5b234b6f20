//===- Strips.cpp - The control flow of nests with strips -----------------===//
//
// Loops that are there twice, with strips and as they were; which of them a nest
// goes through; strips, and the ticks between them.
//
//===----------------------------------------------------------------------===//

#include "Insertion.h"

#include "llvm/IR/Dominators.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"
#include "llvm/Transforms/Utils/Cloning.h"

using namespace llvm;
using namespace runahead;

/// May there be another copy of a loop? What is used of it outside must go through
/// the exits' phis.
bool Insertion::isCopyable(Loop *L) {
  if (!L->isSafeToClone())
    return false;
  for (BasicBlock *Block : L->blocks())
    for (Instruction &I : *Block)
      for (Use &U : I.uses()) {
        auto *User = cast<Instruction>(U.getUser());
        auto *Phi = dyn_cast<PHINode>(User);
        if (!L->contains(Phi ? Phi->getIncomingBlock(U) : User->getParent()))
          return false;
      }
  return true;
}

/// Copies a loop as it was before any strips, for where one strip is all of it (the
/// paper's "two versions of the loop", section 4.1.1). Returns the header of the
/// copy, which is entered from where the loop is.
BasicBlock *Insertion::copyUnsplit(Loop *L) {
  ValueToValueMapTy Copies;
  SmallVector<BasicBlock *, 8> Blocks;
  for (BasicBlock *Block : L->blocks()) {
    Blocks.push_back(CloneBasicBlock(Block, Copies, ".unsplit", &F));
    Copies[Block] = Blocks.back();
  }
  remapInstructionsInBlocks(Blocks, Copies);
  for (BasicBlock *Block : L->blocks())
    for (BasicBlock *After : successors(Block)) {
      if (L->contains(After))
        continue;
      for (PHINode &Phi : After->phis()) {
        Value *V = Phi.getIncomingValueForBlock(Block);
        auto Copy = Copies.find(V);
        Phi.addIncoming(Copy == Copies.end() ? V : &*Copy->second, cast<BasicBlock>(Copies[Block]));
      }
    }
  // The number of the iteration is of no use there.
  for (Loop *Inner : L->getLoopsInPreorder()) {
    auto Known = Iterations.find(Inner);
    if (Known == Iterations.end())
      continue;
    Value *Next = Known->second->getIncomingValueForBlock(Inner->getLoopLatch());
    auto *Number = cast<Instruction>(Copies[Known->second]);
    auto *NextCopy = cast<Instruction>(Copies[Next]);
    if (Number->hasOneUse() && NextCopy->hasOneUse()) {
      // They use each other.
      NextCopy->replaceAllUsesWith(PoisonValue::get(Int64));
      NextCopy->eraseFromParent();
      Number->eraseFromParent();
    }
  }
  return cast<BasicBlock>(Copies[L->getHeader()]);
}

/// Moves what is computed in `From` and used in these blocks only, to the first of
/// them.
static void sink(BasicBlock *From, BasicBlock *To, const std::set<BasicBlock *> &Users) {
  auto IsUsedThere = [&](const Use &U) {
    auto *User = cast<Instruction>(U.getUser());
    auto *Phi = dyn_cast<PHINode>(User);
    return Users.count(Phi ? Phi->getIncomingBlock(U) : User->getParent()) != 0;
  };
  for (auto At = From->rbegin(); At != From->rend();) {
    Instruction &I = *At++;
    if (I.isTerminator() || isa<PHINode>(I) || isa<AllocaInst>(I) || I.use_empty() ||
        I.mayReadOrWriteMemory() || I.mayHaveSideEffects() || !all_of(I.uses(), IsUsedThere))
      continue;
    I.moveBefore(*To, To->getFirstInsertionPt());
  }
}

/// Begins the nests of one outermost loop.
///
///   before -> header
/// becomes, where all of the loop is there twice,
///   before -> begin | copy;  begin -> header | copy
void Insertion::insertBegins(Loop *Root, ArrayRef<Nest *> Its) {
  BasicBlock *Before = outside(Root);
  IRBuilder<> B(Before->getTerminator());
  SmallVector<Value *, 4> Conditions;
  for (Nest *N : Its)
    Conditions.push_back(isToBegin(B, *N));
  if (!isKeptWhole(Root)) {
    for (size_t Index = 0; Index < Its.size(); ++Index)
      insertBegin(*Its[Index], Conditions[Index]);
    return;
  }
  KeptWhole.insert(Root);
  Value *Any = B.CreateOr(Conditions);
  BasicBlock *Begin = SplitBlock(Before, Before->getTerminator());
  Begin->setName("ra.begin");
  BasicBlock *Copy = copyUnsplit(Root);
  Value *Splits = nullptr;
  for (size_t Index = 0; Index < Its.size(); ++Index) {
    Value *Own = insertBegin(*Its[Index], Its.size() == 1 ? nullptr : Conditions[Index]);
    IRBuilder<> T(outside(Root)->getTerminator());
    Splits = Splits ? T.CreateOr(Splits, Own) : Own;
  }
  BasicBlock *Last = outside(Root);
  Instruction *Old = Last->getTerminator();
  IRBuilder<> T(Old);
  T.CreateCondBr(T.CreateIsNotNull(Splits), Root->getHeader(), Copy);
  Old->eraseFromParent();
  for (PHINode &Phi : Copy->phis()) {
    const int Entry = Phi.getBasicBlockIndex(Begin);
    Phi.addIncoming(Phi.getIncomingValue(Entry), Last);
    Phi.setIncomingBlock(Entry, Before);
  }
  Old = Before->getTerminator();
  IRBuilder<>(Old).CreateCondBr(Any, Begin, Copy)->setMetadata(
      BEGIN_MARK, MDNode::get(F.getContext(), {}));
  Old->eraseFromParent();
  Begins.emplace_back(Before, Begin);
}

/// Parameters, and numbers of iterations, are computed where a nest is told of only.
void Insertion::sinkParameters() {
  DominatorTree DT(F);
  for (auto [Before, Begin] : Begins) {
    SmallVector<BasicBlock *, 16> Region;
    DT.getDescendants(Begin, Region);
    sink(Before, Begin, std::set<BasicBlock *>(Region.begin(), Region.end()));
  }
}

/// Is there to be a copy of all of a nest, beside the one with strips? Not of one
/// with other nests inside, and not of very long ones.
bool Insertion::isKeptWhole(Loop *Root) {
  constexpr size_t InstructionsMax = 2000;
  size_t Instructions = 0;
  for (BasicBlock *Block : Root->blocks())
    Instructions += Block->size();
  bool IsStripMined = false;
  for (const Nest &N : Nests) {
    if (N.Path.front() != Root && Root->contains(N.Path.front()))
      return false;
    IsStripMined |= N.Path.front() == Root && N.StripMined;
  }
  return IsStripMined && Instructions <= InstructionsMax && isCopyable(Root);
}

/// Keeps an innermost loop as it is beside the one that is about to be
/// strip-mined, in the nests that have strips: one of the loops outside may.
///
///   before -> copy of the loop | header;  copy's latch -> after
void Insertion::keepUnsplit(Loop *L, Value *Count) {
  BasicBlock *Before = outside(L);
  IRBuilder<> B(Before->getTerminator());
  // The program may end before it comes to the condition that this is from.
  Value *Any = opaque(B, Count), *Splits = nullptr;
  for (Nest &N : Nests)
    for (size_t Level = 0; Level < N.Path.size(); ++Level)
      if (N.Path[Level] == L && N.Strips[Level]) {
        Value *Shorter = B.CreateICmpULT(N.Strips[Level], Any, "ra.splits");
        Splits = Splits ? B.CreateOr(Splits, Shorter) : Shorter;
      }
  Instruction *Old = Before->getTerminator();
  B.CreateCondBr(Splits, L->getHeader(), copyUnsplit(L));
  Old->eraseFromParent();
}

/// Splits the iterations of a loop into strips (section 2.3: strip mining
/// rather than unrolling isolates the iterations that touch a new block).
///
///   before -> header ... latch -> header | after
/// becomes
///   before -> strip -> header ... latch -> header | end
///   end -> after | tick;  tick -> strip
/// or, where the number of iterations is only guessed or the loop may be left
/// elsewhere, keeps the loop's own conditions:
///   before -> strip -> header ... latch -> guard | after
///   guard -> header | tick;  tick -> strip
void Insertion::stripMine(Loop *L) {
  LLVMContext &Context = F.getContext();
  PHINode *Iteration = Iterations[L];
  BasicBlock *Header = L->getHeader(), *Latch = L->getLoopLatch();
  Value *Next = Iteration->getIncomingValueForBlock(Latch);
  BasicBlock *Before = outside(L);
  Value *Count = ExpandedTripCounts[L];
  if (L->isInnermost() && !KeptWhole.count(L) && isCopyable(L))
    keepUnsplit(L, Count);

  BasicBlock *Strip = BasicBlock::Create(Context, "ra.strip.begin", &F, Header);
  BasicBlock *Tick = BasicBlock::Create(Context, "ra.strip.tick", &F, Latch->getNextNode());
  BasicBlock *End = BasicBlock::Create(Context, "ra.strip.end", &F, Tick);

  // A strip begins with the values that the last one ended with.
  IRBuilder<> S(Strip);
  PHINode *Begun = nullptr;
  for (PHINode &Phi : Header->phis()) {
    const int Outside = Phi.getBasicBlockIndex(Before);
    PHINode *Carried = S.CreatePHI(Phi.getType(), 2, Phi.getName() + ".strip");
    Carried->addIncoming(Phi.getIncomingValue(Outside), Before);
    Carried->addIncoming(Phi.getIncomingValueForBlock(Latch), Tick);
    Phi.setIncomingValue(Outside, Carried);
    Phi.setIncomingBlock(Outside, Strip);
    if (&Phi == Iteration)
      Begun = Carried;
  }
  Value *Length = S.CreateSub(Count, Begun, "ra.left");
  for (Nest &N : Nests)
    for (size_t Level = 0; Level < N.Path.size(); ++Level)
      if (N.Path[Level] == L && N.Strips[Level])
        Length = S.CreateSelect(S.CreateICmpULT(N.Strips[Level], Length), N.Strips[Level], Length);
  Value *Limit = S.CreateAdd(Begun, Length, "ra.limit");
  S.CreateBr(Header);
  Before->getTerminator()->replaceUsesOfWith(Header, Strip);

  Instruction *Last = Latch->getTerminator();
  IRBuilder<> AtLatch(Last), E(End);
  if (Guarded.count(L)) {
    Last->replaceUsesOfWith(Header, End);
    Header->replacePhiUsesWith(Latch, End);
    E.CreateCondBr(E.CreateICmpEQ(Next, Limit, "ra.strip.done"), Tick, Header);
  } else {
    BasicBlock *After = Last->getSuccessor(Last->getSuccessor(0) == Header ? 1 : 0);
    Instruction *NewBranch =
        AtLatch.CreateCondBr(AtLatch.CreateICmpEQ(Next, Limit, "ra.strip.done"), End, Header);
    NewBranch->setMetadata(LLVMContext::MD_loop, Last->getMetadata(LLVMContext::MD_loop));
    NewBranch->setDebugLoc(Last->getDebugLoc());
    Last->eraseFromParent();
    for (PHINode &Phi : After->phis())
      Phi.replaceIncomingBlockWith(Latch, End);
    E.CreateCondBr(E.CreateICmpEQ(Next, Count, "ra.done"), After, Tick);
  }

  IRBuilder<> T(Tick);
  FunctionCallee Call = runtime("ra_tick", T.getVoidTy(), {Pointer, Pointer, Int64});
  for (Nest &N : Nests)
    for (size_t Level = 0; Level < N.Path.size(); ++Level) {
      if (N.Path[Level] != L)
        continue;
      for (size_t Outer = 0; Outer <= Level; ++Outer) {
        Value *Index = Outer == Level ? Next : Iterations[N.Path[Outer]];
        T.CreateStore(Index, word(T, N.Frame, FrameIndex + Outer));
      }
      T.CreateCall(Call, {T.CreatePointerCast(N.Site, Pointer),
                          T.CreatePointerCast(N.Frame, Pointer),
                          ConstantInt::get(Int64, Level)});
    }
  T.CreateBr(Strip);
}
