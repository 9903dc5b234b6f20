//===- Locality.cpp - Locality analysis -----------------------------------===//
//
// On top of ScalarEvolution: bases, strides and bounds, as far as they are known
// before the outermost loop in which they do not change; numbers or not.
//
//===----------------------------------------------------------------------===//

#include "Locality.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/Analysis/ScalarEvolutionExpressions.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Operator.h"

using namespace llvm;
using namespace runahead;

/// A nest that is known to touch less than this gets no hints.
constexpr uint64_t TinyBytes = 16 << 10;
/// Variables that begin as zeros come from no disk; up to this size a program
/// uses one so often, a buffer of lines say, that it stays.
constexpr uint64_t ZeroedBytes = 512 << 10;
/// Group locality: references at most so far apart share a stream, where the
/// stride of the outermost loop is unknown.
constexpr int64_t GroupBytes = 64 << 10;

namespace {

/// The expression as if no 32-bit index ever wrapped around. A wrong guess
/// costs a useless hint, never a result.
class WithoutWrapping : public SCEVRewriteVisitor<WithoutWrapping> {
public:
  explicit WithoutWrapping(ScalarEvolution &SE) : SCEVRewriteVisitor(SE) {}

  const SCEV *visitZeroExtendExpr(const SCEVZeroExtendExpr *E) {
    return widen(visit(E->getOperand()), E->getType(), /*Signed=*/false);
  }
  const SCEV *visitSignExtendExpr(const SCEVSignExtendExpr *E) {
    return widen(visit(E->getOperand()), E->getType(), /*Signed=*/true);
  }

private:
  const SCEV *widen(const SCEV *S, Type *To, bool Signed) {
    if (const auto *AR = dyn_cast<SCEVAddRecExpr>(S); AR && AR->isAffine())
      return SE.getAddRecExpr(widen(AR->getStart(), To, Signed),
                              SE.getSignExtendExpr(AR->getStepRecurrence(SE), To),
                              AR->getLoop(), SCEV::FlagAnyWrap);
    if (const auto *Add = dyn_cast<SCEVAddExpr>(S)) {
      SmallVector<const SCEV *, 4> Operands;
      for (const SCEV *Operand : Add->operands())
        Operands.push_back(widen(Operand, To, /*Signed=*/true));
      return SE.getAddExpr(Operands);
    }
    return Signed ? SE.getSignExtendExpr(S, To) : SE.getZeroExtendExpr(S, To);
  }
};

} // namespace

void Locality::missed(Instruction &I, StringRef Why) {
  ORE.emit([&] {
    return OptimizationRemarkMissed(PASS, "NotPrefetched", &I)
           << "reference not prefetched: " << Why;
  });
}

/// The iterations that a counting loop makes if its counter does not overflow,
/// for steps other than one, known or not. Good enough for hints, not for strip-mining.
const SCEV *Locality::probablyTaken(Loop *L) {
  auto *Branch = dyn_cast<BranchInst>(L->getLoopLatch()->getTerminator());
  auto *Compare = Branch && Branch->isConditional() ? dyn_cast<ICmpInst>(Branch->getCondition())
                                                    : nullptr;
  if (!Compare || !Compare->getOperand(0)->getType()->isIntegerTy())
    return SE.getCouldNotCompute();
  const SCEV *Counter = SE.getSCEV(Compare->getOperand(0));
  const SCEV *Bound = SE.getSCEV(Compare->getOperand(1));
  if (!isa<SCEVAddRecExpr>(Counter))
    std::swap(Counter, Bound);
  const auto *AR = dyn_cast<SCEVAddRecExpr>(Counter);
  const SCEV *Step = AR ? AR->getStepRecurrence(SE) : nullptr;
  if (!Step || AR->getLoop() != L || !AR->isAffine() || Step->isZero() ||
      !isInvariantIn(Bound, L))
    return SE.getCouldNotCompute();
  const bool Down = SE.isKnownNegative(Step);
  const SCEV *Way = Down ? SE.getMinusSCEV(AR->getStart(), Bound)
                         : SE.getMinusSCEV(Bound, AR->getStart());
  Way = SE.getSMaxExpr(Way, SE.getZero(Way->getType()));
  // Of a step that is known at run time only, upwards is assumed: for hints. It
  // is no divisor before it is made one that is not zero.
  const SCEV *Size = Down ? SE.getNegativeSCEV(Step) : Step;
  if (!SE.isKnownNonZero(Size))
    Size = SE.getUMaxExpr(Size, SE.getOne(Size->getType()));
  return SE.getUDivExpr(Way, Size);
}

/// Number of iterations in 64 bits; null where nobody knows before the loop.
/// With several exits the count of the latch: a maximum serves for hints.
const SCEV *Locality::tripCount(Loop *L) {
  auto [Known, IsNew] = TripCounts.try_emplace(L, nullptr);
  if (!IsNew)
    return Known->second;
  if (!L->isLoopSimplifyForm())
    return nullptr;
  const SCEV *Taken = SE.getBackedgeTakenCount(L);
  if (isa<SCEVCouldNotCompute>(Taken) && L->isLoopExiting(L->getLoopLatch()))
    Taken = SE.getExitCount(L, L->getLoopLatch());
  if (isa<SCEVCouldNotCompute>(Taken))
    Taken = probablyTaken(L);
  if (isa<SCEVCouldNotCompute>(Taken) || SE.getTypeSizeInBits(Taken->getType()) > 64)
    return nullptr;
  Taken = SE.getNoopOrZeroExtend(Taken, Int64);
  return Known->second = SE.getAddExpr(Taken, SE.getOne(Int64));
}

/// Bytes from one end of a loop to the other; rather a step more than a division.
const SCEV *Locality::moved(const SCEV *Stride, Loop *L) {
  const SCEV *Count = tripCount(L);
  const auto *Taken = dyn_cast<SCEVUDivExpr>(SE.getMinusSCEV(Count, SE.getOne(Int64)));
  if (!Taken)
    return SE.getMulExpr(Stride, Count);
  const SCEV *Step = Taken->getRHS();
  if (const auto *Most = dyn_cast<SCEVUMaxExpr>(Step);
      Most && Most->getNumOperands() == 2 && Most->getOperand(0)->isOne())
    Step = Most->getOperand(1);
  auto Factor = [](const SCEV *S) -> int64_t {
    if (const auto *Product = dyn_cast<SCEVMulExpr>(S))
      S = Product->getOperand(0);
    const auto *Constant = dyn_cast<SCEVConstant>(S);
    return Constant ? Constant->getAPInt().getSExtValue() : 1;
  };
  if (Factor(Step) <= 0)
    return SE.getMulExpr(Stride, Count);
  const SCEV *Bytes = SE.getConstant(Int64, Factor(Stride) / Factor(Step), true);
  if (SE.getMulExpr(Bytes, Step) != Stride)
    return SE.getMulExpr(Stride, Count);
  return SE.getAddExpr(SE.getMulExpr(Bytes, Taken->getLHS()), Stride);
}

bool Locality::isExpandable(const SCEV *S, Loop *Root) {
  return isInvariantIn(S, Root) &&
         isSafeToExpand(Expander, SE, S, Root->getLoopPreheader()->getTerminator());
}

/// Takes an address apart into base and strides, over as many surrounding loops
/// as bounds and strides do not change in.
bool Locality::affine(const SCEV *Address, Loop *L, SmallVectorImpl<Loop *> &Path,
                      Stream &S) {
  SmallVector<Loop *, 6> Inner;          // innermost first
  SmallVector<const SCEV *, 6> Strides;
  const SCEV *Base = nullptr;
  size_t Levels = 0; // of Inner that belong to the nest
  const SCEV *Rest = Address;
  for (Loop *Root = L; Root && Inner.size() < LevelsMax; Root = Root->getParentLoop()) {
    const SCEV *Count = tripCount(Root);
    if (!Count)
      break;
    const SCEV *Stride = SE.getZero(Int64);
    if (const auto *AR = dyn_cast<SCEVAddRecExpr>(Rest); AR && AR->getLoop() == Root) {
      if (!AR->isAffine())
        break;
      Stride = SE.getNoopOrSignExtend(AR->getStepRecurrence(SE), Int64);
      Rest = AR->getStart();
    }
    Inner.push_back(Root);
    Strides.push_back(Stride);
    bool Fits = isExpandable(Rest, Root);
    for (size_t I = 0; Fits && I < Inner.size(); ++I)
      Fits = isExpandable(Strides[I], Root) && isExpandable(tripCount(Inner[I]), Root);
    if (!Fits)
      break;
    // A loop that the reference does not move in is no part of its nest,
    // unless a loop outside of it is: temporal locality.
    if (!Stride->isZero()) {
      Levels = Inner.size();
      Base = Rest;
    }
  }
  if (Levels == 0)
    return false;
  S.Base = Base;
  for (size_t I = Levels; I-- > 0;) {
    Path.push_back(Inner[I]);
    S.Strides.push_back(Strides[I]);
  }
  return true;
}

/// a[b[i]]: the address is linear in a value that is loaded by an affine
/// reference of the same loop. The index stream is described, and what to do
/// with an index (section 2.3: "it is able to prefetch the indirect a[b[i]]").
bool Locality::indirect(const SCEV *Address, Loop *L, SmallVectorImpl<Loop *> &Path,
                        Stream &S) {
  const auto *Sum = dyn_cast<SCEVAddExpr>(Address);
  if (!Sum || !L->isInnermost())
    return false;
  SmallVector<const SCEV *, 4> Fixed;
  const SCEV *Varying = nullptr;
  for (const SCEV *Operand : Sum->operands()) {
    if (isInvariantIn(Operand, L))
      Fixed.push_back(Operand);
    else if (Varying)
      return false;
    else
      Varying = Operand;
  }
  if (!Varying)
    return false;
  int64_t Scale = 1;
  if (const auto *Product = dyn_cast<SCEVMulExpr>(Varying)) {
    const auto *Constant = dyn_cast<SCEVConstant>(Product->getOperand(0));
    if (!Constant || Product->getNumOperands() != 2)
      return false;
    Scale = Constant->getAPInt().getSExtValue();
    Varying = Product->getOperand(1);
  }
  bool Signed = true;
  if (const auto *Extended = dyn_cast<SCEVSignExtendExpr>(Varying))
    Varying = Extended->getOperand();
  else if (const auto *Extended = dyn_cast<SCEVZeroExtendExpr>(Varying))
    Varying = Extended->getOperand(), Signed = false;
  // b[i] + constant: the constant belongs to the target.
  int64_t Offset = 0;
  if (const auto *Add = dyn_cast<SCEVAddExpr>(Varying)) {
    const auto *Constant = dyn_cast<SCEVConstant>(Add->getOperand(0));
    if (!Constant || Add->getNumOperands() != 2)
      return false;
    Offset = Constant->getAPInt().getSExtValue();
    Varying = Add->getOperand(1);
  }
  const auto *Unknown = dyn_cast<SCEVUnknown>(Varying);
  auto *Index = Unknown ? dyn_cast<LoadInst>(Unknown->getValue()) : nullptr;
  // The run-time layer reads indices as the program reads its memory by default.
  if (!Index || !Index->isSimple() || Index->getPointerAddressSpace() != 0 ||
      LI.getLoopFor(Index->getParent()) != L)
    return false;
  // The run-time layer reads indices that the loop has not got to: they must
  // be ones that it surely gets to, or reading could leave the array. Those that are
  // loaded after the loop's condition are one less than it has iterations.
  BasicBlock *Exiting = L->getExitingBlock();
  if (!Exiting || !DT.dominates(Index->getParent(), Exiting) ||
      !DT.dominates(Exiting, L->getLoopLatch()) ||
      isa<SCEVCouldNotCompute>(SE.getBackedgeTakenCount(L)))
    return false;
  for (BasicBlock *Block : L->blocks())
    for (Instruction &I : *Block)
      if (!isGuaranteedToTransferExecutionToSuccessor(&I))
        return false;
  uint64_t Bytes = DL.getTypeStoreSize(Index->getType());
  if (!Index->getType()->isIntegerTy() || (Bytes != 4 && Bytes != 8))
    return false;
  // Without any guess about wrapping: an index of 16 or 32 bits that wraps around goes
  // back to the array's beginning, and the run-time layer would read beyond its end.
  const SCEV *IndexAddress = SE.getSCEV(Index->getPointerOperand());
  // Only within the loop itself: beyond its end nothing is known to be there.
  const auto *AR = dyn_cast<SCEVAddRecExpr>(IndexAddress);
  if (!AR || AR->getLoop() != L || !AR->isAffine() || !tripCount(L) ||
      !isExpandable(AR->getStart(), L) ||
      !isExpandable(AR->getStepRecurrence(SE), L) || !isExpandable(tripCount(L), L))
    return false;
  const SCEV *Target = SE.getAddExpr(Fixed);
  if (!Target->getType()->isPointerTy() || !isExpandable(Target, L))
    return false;
  Path.push_back(L);
  S.Base = AR->getStart();
  S.Strides.push_back(SE.getNoopOrSignExtend(AR->getStepRecurrence(SE), Int64));
  S.Low = 0;
  S.High = static_cast<int64_t>(Bytes);
  S.Target = SE.getAddExpr(Target, SE.getConstant(Int64, Offset * Scale, true));
  S.Scale = Scale;
  S.Flags = FlagIndirect | (Signed ? FlagIndexSigned : 0) | (Bytes << FlagIndexBytesShift);
  return true;
}

/// What `V` is computed from, as far as a run-time layer could do it again for any
/// iteration: nothing that reads memory, calls or goes on from the iteration before.
bool Locality::collect(Value *V, Loop *L, Computation &C) {
  constexpr size_t StepsMax = 24, ValuesMax = 8;
  auto IsWord = [&](Type *T) {
    return (T->isIntegerTy() && T->getIntegerBitWidth() <= 64) ||
           (T->isPointerTy() && T->getPointerAddressSpace() == 0 &&
            DL.getTypeSizeInBits(T) == 64);
  };
  if (isa<Constant>(V))
    return true;
  if (!IsWord(V->getType()))
    return false;
  auto *I = dyn_cast<Instruction>(V);
  if (!I || !L->contains(I)) {
    if (!is_contained(C.Values, V))
      C.Values.push_back(V);
    return C.Values.size() <= ValuesMax;
  }
  if (is_contained(C.Steps, I))
    return true;
  if (auto *Phi = dyn_cast<PHINode>(I)) {
    const auto *AR = I->getParent() == L->getHeader() && SE.isSCEVable(I->getType())
                         ? dyn_cast<SCEVAddRecExpr>(SE.getSCEV(I))
                         : nullptr;
    if (!AR || AR->getLoop() != L || !AR->isAffine() || !isExpandable(AR->getStart(), L) ||
        !isExpandable(AR->getStepRecurrence(SE), L))
      return false;
    if (!is_contained(C.Counters, Phi))
      C.Counters.push_back(Phi);
    return true;
  }
  if (auto *Call = dyn_cast<IntrinsicInst>(I))
    switch (Call->getIntrinsicID()) {
    case Intrinsic::abs:
    case Intrinsic::smax:
    case Intrinsic::smin:
    case Intrinsic::umax:
    case Intrinsic::umin:
      break;
    default:
      return false;
    }
  else if (!isa<BinaryOperator>(I) && !isa<GetElementPtrInst>(I) && !isa<CmpInst>(I) &&
           !isa<SelectInst>(I) && !isa<FreezeInst>(I) && !isa<CastInst>(I))
    return false;
  for (Value *Operand : I->operands())
    if (!isa<Function>(Operand) && !collect(Operand, L, C))
      return false;
  C.Steps.push_back(I);
  return C.Steps.size() <= StepsMax;
}

/// a[f(i)], such as a[5 * i % n]: the address is computed from the number of the
/// iteration and what the loop leaves alone, so that it can be for one further on.
bool Locality::computed(Value *Address, Loop *L, SmallVectorImpl<Loop *> &Path, Stream &S) {
  if (!L->isInnermost() || !tripCount(L) || !isExpandable(tripCount(L), L) ||
      !collect(Address, L, S.Computed) || S.Computed.Counters.empty())
    return false;
  S.Computed.Address = Address;
  Path.push_back(L);
  S.Base = S.Target = SE.getSCEV(Address);
  S.Strides.push_back(SE.getConstant(Int64, ComputedBytes));
  S.Low = 0;
  S.High = ComputedBytes;
  S.Flags = FlagIndirect | FlagComputed;
  return true;
}

/// Arrays so small that they stay in memory by themselves.
bool Locality::isSmallObject(Value *Address) {
  const Value *Object = getUnderlyingObject(Address);
  if (const auto *Local = dyn_cast<AllocaInst>(Object)) {
    auto *Count = dyn_cast<ConstantInt>(Local->getArraySize());
    return Count && Count->getZExtValue() * DL.getTypeAllocSize(Local->getAllocatedType()) <=
                        SmallBytes;
  }
  const auto *Global = dyn_cast<GlobalVariable>(Object);
  // Of another file's the size need not be known: `extern double a[];`, or of a type that is
  // not defined here.
  if (!Global || !Global->getValueType()->isSized())
    return false;
  const uint64_t Bytes = DL.getTypeAllocSize(Global->getValueType());
  const bool IsZeroed = Global->hasInitializer() && Global->getInitializer()->isNullValue();
  return Bytes > 0 && Bytes <= (IsZeroed ? ZeroedBytes : TinyBytes);
}

void Locality::analyse(Instruction &I) {
  Value *Address = const_cast<Value *>(getLoadStorePointerOperand(&I));
  Loop *L = LI.getLoopFor(I.getParent());
  if (!Address || !L || Address->getType()->getPointerAddressSpace() != 0)
    return;
  if (!SE.isSCEVable(Address->getType()))
    return;
  if (isSmallObject(Address)) {
    if (!L->isLoopInvariant(Address))
      missed(I, "its array is so small that it stays in memory");
    return;
  }
  const SCEV *S = WithoutWrapping(SE).visit(SE.getSCEV(Address));
  if (isInvariantIn(S, L) && !L->getParentLoop())
    return;
  Stream New;
  New.Example = &I;
  SmallVector<Loop *, 6> Path;
  New.High = static_cast<int64_t>(DL.getTypeStoreSize(getLoadStoreType(&I)).getKnownMinValue());
  if (!affine(S, L, Path, New)) {
    Path.clear();
    New.Strides.clear();
    if (!indirect(S, L, Path, New) && !computed(Address, L, Path, New)) {
      missed(I, !tripCount(L) ? "the loop's trip count is not known before it"
                              : "its address is neither affine, nor indirect through one, nor "
                                "computed from the number of the iteration");
      return;
    }
  }
  if (isa<StoreInst>(I))
    New.Flags |= FlagWrite;
  place(Path, New);
}

/// Group locality: same strides and a constant distance.
bool Locality::joinsGroup(Stream &Group, const Stream &S) {
  if (Group.Flags & S.Flags & FlagComputed) {
    constexpr int64_t Near = 256;
    if (Group.Target->getType() != S.Target->getType())
      return false;
    const auto *Distance = dyn_cast<SCEVConstant>(SE.getMinusSCEV(S.Target, Group.Target));
    return Distance && Distance->getAPInt().abs().ult(Near);
  }
  if ((Group.Flags | S.Flags) & FlagIndirect) {
    if (Group.Base == S.Base && Group.Target == S.Target && Group.Scale == S.Scale &&
        ((Group.Flags ^ S.Flags) & ~FlagWrite) == 0)
      return true;
    return false;
  }
  if (Group.Strides != S.Strides || Group.Base->getType() != S.Base->getType())
    return false;
  const auto *Distance = dyn_cast<SCEVConstant>(SE.getMinusSCEV(S.Base, Group.Base));
  if (!Distance)
    return false;
  int64_t Limit = GroupBytes;
  if (const auto *Outer = dyn_cast<SCEVConstant>(S.Strides.front())) {
    const int64_t Stride = Outer->getAPInt().getSExtValue();
    Limit = std::max(Limit, 4 * (Stride < 0 ? -Stride : Stride));
  }
  const int64_t Bytes = Distance->getAPInt().getSExtValue();
  if (Bytes > Limit || Bytes < -Limit)
    return false;
  Group.Low = std::min(Group.Low, Bytes + S.Low);
  Group.High = std::max(Group.High, Bytes + S.High);
  Group.Flags |= S.Flags;
  return true;
}

void Locality::place(ArrayRef<Loop *> Path, Stream S) {
  for (Nest &N : Nests) {
    const size_t Common = std::min(Path.size(), N.Path.size());
    if (!std::equal(Path.begin(), Path.begin() + Common, N.Path.begin()))
      continue;
    if (Path.size() > N.Path.size()) {
      // Bounds of the longer path are invariant in its root by construction.
      for (Stream &Known : N.Streams)
        while (Known.Strides.size() < Path.size())
          Known.Strides.push_back(SE.getZero(Int64));
      N.Path.assign(Path.begin(), Path.end());
    }
    while (S.Strides.size() < N.Path.size())
      S.Strides.push_back(SE.getZero(Int64));
    for (Stream &Known : N.Streams)
      if (joinsGroup(Known, S))
        return;
    if (N.Streams.size() >= StreamsMax)
      return missed(*S.Example, "too many references in this nest");
    N.Streams.push_back(std::move(S));
    return;
  }
  Nests.emplace_back();
  Nests.back().Path.assign(Path.begin(), Path.end());
  Nests.back().Streams.push_back(std::move(S));
}

/// What the nest touches at most in one execution of its loop at level `From`
/// and the loops inside; UINT64_MAX where a bound or a stride is not known.
uint64_t Locality::bytesAtMost(const Nest &N, size_t From) {
  constexpr uint64_t Limit = 1 << 30;
  uint64_t Total = 0;
  for (const Stream &S : N.Streams) {
    if (S.Flags & FlagIndirect)
      return UINT64_MAX;
    uint64_t Bytes = static_cast<uint64_t>(S.High - S.Low);
    for (size_t Level = From; Level < N.Path.size(); ++Level) {
      if (S.Strides[Level]->isZero())
        continue;
      const auto *Stride = dyn_cast<SCEVConstant>(S.Strides[Level]);
      const SCEV *Count = tripCount(N.Path[Level]);
      if (!Stride)
        return UINT64_MAX;
      // As a signed number, too: of "four minus the outer index" the unsigned
      // range is everything, and no loop makes 2^63 iterations.
      const APInt Most = APIntOps::umin(SE.getUnsignedRangeMax(Count),
                                        SE.getSignedRangeMax(Count));
      Bytes += Stride->getAPInt().abs().getLimitedValue(Limit) * Most.getLimitedValue(Limit);
      if (Bytes >= Limit)
        return UINT64_MAX;
    }
    Total += Bytes;
  }
  return Total;
}

/// Everything that the nest touches is known, and little.
bool Locality::isTiny(const Nest &N) { return bytesAtMost(N, 0) < TinyBytes; }

/// Does the loop make a number of iterations that is known before it, and leave
/// at its latch only? Then the strips need no test of their own in each
/// iteration, and are vectorized as the loop would have been.
bool Locality::isCounted(Loop *L) {
  auto *Branch = dyn_cast<BranchInst>(L->getLoopLatch()->getTerminator());
  return L->getExitingBlock() == L->getLoopLatch() && Branch && Branch->isConditional() &&
         !isa<SCEVCouldNotCompute>(SE.getBackedgeTakenCount(L));
}

/// May the vectorizer go another way through the values that this one is of?
static bool mayBeReordered(const Instruction &I) {
  const auto *Operation = dyn_cast<FPMathOperator>(&I);
  if (!Operation)
    return false;
  // Least and greatest values: of two zeros it may be either.
  const bool Chooses = isa<FCmpInst>(I) || isa<IntrinsicInst>(I);
  return Operation->hasAllowReassoc() || (Chooses && Operation->hasNoSignedZeros());
}

/// Is the vectorizer told to vectorize this loop? Then it may add in another order,
/// whatever the operations permit themselves.
static bool isToBeVectorized(const Loop *L) {
  return getBooleanLoopAttribute(L, "llvm.loop.vectorize.enable") ||
         getIntLoopAttribute(L, "llvm.loop.vectorize.width") > 1 ||
         getBooleanLoopAttribute(L, "llvm.loop.vectorize.scalable.enable");
}

/// A sum that may be reassociated would be reassociated strip by strip, and come out
/// different in its last bits; the greatest of several zeros, in its sign. A loop has
/// one where something of the kind lies on the way from a value of its header to that
/// of the next iteration. On that way there may be conditions, and so other phis, which
/// permit nothing themselves.
static bool hasReassociableSum(const Loop *L) {
  const bool IsAny = isToBeVectorized(L);
  for (const PHINode &Phi : L->getHeader()->phis()) {
    if (!Phi.getType()->isFPOrFPVectorTy())
      continue;
    SmallSetVector<const Instruction *, 16> From;
    auto Add = [&](const Value *V) {
      if (const auto *I = dyn_cast<Instruction>(V); I && L->contains(I))
        From.insert(I);
    };
    bool MayBeReordered = false;
    Add(Phi.getIncomingValueForBlock(L->getLoopLatch()));
    for (size_t Next = 0; Next < From.size(); ++Next) {
      MayBeReordered |= mayBeReordered(*From[Next]) ||
                        (IsAny && isa<FPMathOperator>(From[Next]) && !isa<PHINode>(From[Next]));
      for (const Value *Operand : From[Next]->operands())
        Add(Operand);
    }
    if (MayBeReordered && From.count(&Phi))
      return true;
  }
  return false;
}

/// Does code for this function fuse products and sums? Without the instructions nothing is.
static bool hasFusedProducts(const Function &F) {
  if (F.getFnAttribute("target-features").getValueAsString().contains("+fma"))
    return true;
  const StringRef Processor = F.getFnAttribute("target-cpu").getValueAsString();
  return !Processor.empty() && Processor != "generic" && Processor != "x86-64" &&
         Processor != "x86-64-v2";
}

/// May this product be fused with a sum in some iterations only (-ffp-contract=fast)? That
/// goes by blocks. Where the product lies in another block than the sum, both are in one in
/// vectors, which have no conditions, or in iterations that are unrolled, but not in those
/// that are left, and with strips others are left.
static bool isFusedHereAndThere(const Instruction &Product, const Loop *L) {
  return any_of(Product.users(), [&](const User *U) {
    const auto *To = cast<Instruction>(U);
    return L->contains(To) && (isa<PHINode>(To) || isa<SelectInst>(To) ||
                               To->getParent() != Product.getParent());
  });
}

/// May a vector of these come out otherwise than one after the other? What is left of a
/// strip when no vector fits is computed one by one, and of the loop as it was other
/// iterations are left. Fast divisions and roots are estimates in vectors only, and
/// functions of vector libraries are not those of the C library.
bool Locality::mayDifferInVectors(const Instruction &I) {
  const auto *Operation = dyn_cast<FPMathOperator>(&I);
  const bool IsFast =
      Operation && (Operation->hasAllowReciprocal() || Operation->hasApproxFunc());
  if (I.getOpcode() == Instruction::FDiv)
    return IsFast;
  if (I.getOpcode() == Instruction::FMul)
    return Operation->hasAllowContract() && hasFusedProducts(F) &&
           isFusedHereAndThere(I, LI.getLoopFor(I.getParent()));
  if (I.getOpcode() == Instruction::FRem)
    return IsFast || TLI.isFunctionVectorizable("fmod") || TLI.isFunctionVectorizable("fmodf");
  const auto *Call = dyn_cast<CallBase>(&I);
  if (!Call)
    return false;
  const Function *Called = Call->getCalledFunction();
  if (Call->hasFnAttr("vector-function-abi-variant") ||
      (Called && TLI.isFunctionVectorizable(Called->getName())))
    return true;
  switch (Call->getIntrinsicID()) {
  case Intrinsic::copysign:
  case Intrinsic::fabs:
  case Intrinsic::fma:
  case Intrinsic::fmuladd:
  case Intrinsic::maxnum:
  case Intrinsic::minnum:
    return false;
  default:
    return IsFast;
  }
}

/// Strip-mining splits the iterations of a loop and keeps their order.
bool Locality::isStripMinable(Loop *L) {
  // Where an address tells where to go on, it goes on there, whatever block the list names.
  const BasicBlock *Latch = L->getLoopLatch();
  if (!Latch || isa<IndirectBrInst>(Latch->getTerminator()) ||
      isa<CallBrInst>(Latch->getTerminator()))
    return false;
  if (!L->isLoopSimplifyForm() ||
      !isSafeToExpand(Expander, SE, tripCount(L), L->getLoopPreheader()->getTerminator()))
    return false;
  // Innermost loops that are left early may be vectorized too, by some
  // versions; a test in each iteration would prevent it.
  if (!isCounted(L) && L->isInnermost() && L->getExitingBlock() != L->getLoopLatch())
    return false;
  return !L->isInnermost() ||
         (!hasReassociableSum(L) && none_of(L->blocks(), [&](const BasicBlock *Block) {
           return any_of(*Block, [&](const Instruction &I) { return mayDifferInVectors(I); });
         }));
}

std::vector<Nest> Locality::find() {
  for (Loop *L : LI.getLoopsInPreorder())
    for (BasicBlock *Block : L->blocks())
      if (LI.getLoopFor(Block) == L)
        for (Instruction &I : *Block)
          if (isa<LoadInst>(I) ? cast<LoadInst>(I).isSimple()
                               : isa<StoreInst>(I) && cast<StoreInst>(I).isSimple())
            analyse(I);
  std::vector<Nest> Kept;
  for (Nest &N : Nests) {
    if (isTiny(N))
      continue;
    // The first stream is looked at before each nest: rather one that costs nothing.
    std::stable_partition(N.Streams.begin(), N.Streams.end(),
                          [](const Stream &S) { return !(S.Flags & FlagComputed); });
    Kept.push_back(std::move(N));
  }
  return Kept;
}
