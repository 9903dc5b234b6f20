//===- Promises.cpp - What the program's own instructions promise ---------===//
//
// Where SCEVExpander finds an instruction of the program that computes what it is to
// expand, it uses it, and takes from it, and from what that is computed of, the flags by
// which it might be poison where the expression is not. With them goes what later passes
// knew of the program: the loops of a line's transform no longer ran a power of two times,
// got remainders, and the program was a tenth longer where its data are in memory.
//
//===----------------------------------------------------------------------===//

#include "Promises.h"

#include "llvm/Analysis/ScalarEvolutionExpressions.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"

using namespace llvm;
using namespace runahead;

Promises::Promises(Function &F) : F(F) {
  for (Instruction &I : instructions(F)) {
    Own.insert(&I);
    if (I.hasPoisonGeneratingFlags())
      Kept.emplace_back(&I, I.clone());
  }
}

Promises::~Promises() {
  for (auto &[I, AsItWas] : Kept)
    AsItWas->deleteValue();
}

/// May the expander have gone through this one, on its way to what a value is made of?
bool Promises::isOwn(const Value *V) const {
  const auto *I = dyn_cast<Instruction>(V);
  return I && Own.count(I) && !I->mayReadOrWriteMemory() && !I->mayHaveSideEffects();
}

/// Is a copy surely the same value? Two calls, or pieces of assembly, need not give the same.
static bool isCopiable(const Instruction *I) {
  return !isa<PHINode>(I) && !isa<FreezeInst>(I) && (!isa<CallBase>(I) || isa<MinMaxIntrinsic>(I));
}

/// Looks at all that a value is made of. A phi that is no expression is where one begins,
/// and may be poison as ever; behind others the expander has gone round the loop. A freeze
/// is never poison, whatever is promised behind it, and one value: a second freeze of
/// poison may choose another. What a call is made of cannot be copied with it.
void Promises::look(Value *V, ScalarEvolution &SE) {
  SmallVector<std::pair<Value *, bool>, 16> Next{{V, false}};
  while (!Next.empty()) {
    auto [At, IsFixed] = Next.pop_back_val();
    if (!isOwn(At) || isa<FreezeInst>(At) || !Looked[IsFixed].insert(At).second)
      continue;
    auto *I = cast<Instruction>(At);
    if (isa<PHINode>(I) && (!SE.isSCEVable(I->getType()) || isa<SCEVUnknown>(SE.getSCEV(I))))
      continue;
    IsFixed |= !isCopiable(I);
    for (Value *Operand : I->operands())
      Next.emplace_back(Operand, IsFixed);
  }
}

/// The value, computed without the promises that are given back.
Value *Promises::without(Value *V) {
  if (!isOwn(V) || !isCopiable(cast<Instruction>(V)))
    return V;
  if (auto Known = Copies.find(V); Known != Copies.end())
    return Known->second;
  auto *I = cast<Instruction>(V);
  bool IsCopied = Dropped.count(I) != 0;
  SmallVector<Value *, 4> Operands;
  for (Value *Operand : I->operands()) {
    Operands.push_back(without(Operand));
    IsCopied |= Operands.back() != Operand;
  }
  if (!IsCopied)
    return Copies[V] = V;
  IRBuilder<> After(I->getNextNode());
  Instruction *Copy = After.Insert(I->clone(), I->getName() + ".ra");
  for (unsigned Index = 0; Index < Operands.size(); ++Index)
    Copy->setOperand(Index, Operands[Index]);
  return Copies[V] = Copy;
}

void Promises::restore(ScalarEvolution &SE, ArrayRef<Value **> Recorded) {
  constexpr unsigned LookedMax = 10000; // of more, it is not worth the stack to copy them
  for (auto &[I, AsItWas] : Kept)
    if (!I->hasSameSubclassOptionalData(AsItWas))
      Dropped.insert(I);
  if (Dropped.empty())
    return;
  SmallVector<Use *, 64> Uses;
  for (Instruction &I : instructions(F))
    if (!Own.count(&I))
      for (Use &U : I.operands())
        Uses.push_back(&U);
  for (Use *U : Uses)
    look(U->get(), SE);
  for (Value **V : Recorded)
    look(*V, SE);
  if (Looked[0].size() > LookedMax)
    return;
  for (const Value *V : Looked[1])
    Dropped.erase(V);
  for (Use *U : Uses)
    U->set(without(U->get()));
  for (Value **V : Recorded)
    *V = without(*V);
  for (auto &[I, AsItWas] : Kept)
    if (Dropped.count(I))
      I->copyIRFlags(AsItWas);
}
