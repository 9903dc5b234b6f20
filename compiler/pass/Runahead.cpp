//===- Runahead.cpp - Compiler-inserted I/O prefetching ---------------------===//
//
// An LLVM pass after Mowry, Demke and Krieger, "Automatic Compiler-Inserted
// I/O Prefetching for Out-of-Core Applications" (OSDI 1996), section 2.3.
//
// The pass finds affine references in loop nests (ScalarEvolution), strip-mines
// the loops that walk over them and puts a call of the run-time layer between
// the strips. Which of the loops is the one to pipeline over ("the first
// surrounding loop which touches more than a page of the given array"), how
// long a strip is and how far ahead to prefetch depends on bounds, memory size
// and latency that are known at run time only; so the pass tells the run-time
// layer the shape of the nest once, before its outermost loop, and gets the
// lengths of the strips back. Where everything is in memory a strip is so long
// that nothing is left of all this but one comparison per loop.
//
// Hints are advice: the pass changes no value that the program computes, and no
// order in which it does. Of innermost loops it keeps a version as it was.
//
// One source for LLVM 14 to 22, not linked against LLVM (the host has it).
//
//===----------------------------------------------------------------------===//

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/Statistic.h"
#include "llvm/Analysis/AssumptionCache.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/OptimizationRemarkEmitter.h"
#include "llvm/Analysis/ScalarEvolution.h"
#include "llvm/Analysis/ScalarEvolutionExpressions.h"
#include "llvm/Analysis/TargetTransformInfo.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/PassManager.h"
#include "llvm/Passes/PassBuilder.h"
#if LLVM_VERSION_MAJOR >= 22
#include "llvm/Plugins/PassPlugin.h"
#else
#include "llvm/Passes/PassPlugin.h"
#endif
#include "llvm/Transforms/Utils/BasicBlockUtils.h"
#include "llvm/Transforms/Utils/Cloning.h"
#include "llvm/Transforms/Utils/LoopSimplify.h"
#include "llvm/Transforms/Utils/LoopUtils.h"
#include "llvm/Transforms/Utils/ScalarEvolutionExpander.h"

#include <map>
#include <set>
#include <vector>

using namespace llvm;

#define PASS "runahead"

namespace {

//===----------------------------------------------------------------------===//
// The interface to the run-time layer: keep in step with runtime/runahead_rt.h
//===----------------------------------------------------------------------===//

/// Loops of one nest at most; further ones outside are left alone.
constexpr unsigned LevelsMax = 6;
/// References of one nest at most.
constexpr unsigned StreamsMax = 24;
/// Words of a frame before the parameters: strips, indices, run-time state.
constexpr unsigned FrameStrip = 0, FrameIndex = 8, FramePlan = 16, FrameParams = 72;
/// Parameters: trip counts of LevelsMax loops, then the streams.
constexpr unsigned FrameStreams = FrameParams + 8;
/// Words of a stream before its strides.
constexpr unsigned StreamFixed = 6;
constexpr unsigned StreamWords = StreamFixed + LevelsMax;
/// Flags of a stream.
constexpr uint64_t FlagWrite = 1, FlagIndirect = 2, FlagIndexSigned = 4;
constexpr unsigned FlagIndexBytesShift = 8;

/// A nest that touches no more than this is not worth a call by itself; the
/// run-time layer sees it only when it has moved out of the last window.
constexpr uint64_t SmallBytes = 64 << 10;
/// Known to touch less than this: no hints.
constexpr uint64_t TinyBytes = 16 << 10;
/// Variables that begin as zeros come from no disk; up to this size a program
/// uses one so often, a buffer of lines say, that it stays.
constexpr uint64_t ZeroedBytes = 512 << 10;
/// Group locality: references at most so far apart share a stream, where the
/// stride of the outermost loop is unknown.
constexpr int64_t GroupBytes = 64 << 10;

//===----------------------------------------------------------------------===//
// Small differences between the versions of LLVM
//===----------------------------------------------------------------------===//

#if LLVM_VERSION_MAJOR >= 22
#define RUNAHEAD_EXPANDER(SE, DL) SE, "ra"
#else
#define RUNAHEAD_EXPANDER(SE, DL) SE, DL, "ra"
#endif

PointerType *bytePointer(LLVMContext &Context) {
#if LLVM_VERSION_MAJOR >= 15
  return PointerType::get(Context, 0);
#else
  return Type::getInt8PtrTy(Context);
#endif
}

bool isSafeToExpand(SCEVExpander &Expander, ScalarEvolution &SE, const SCEV *S,
                    Instruction *At) {
#if LLVM_VERSION_MAJOR >= 15
  (void)SE;
  return Expander.isSafeToExpandAt(S, At);
#else
  (void)Expander;
  return isSafeToExpandAt(S, At, SE);
#endif
}

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

//===----------------------------------------------------------------------===//
// Locality analysis
//===----------------------------------------------------------------------===//

/// References that share their data (group locality): the leading one is
/// prefetched, the trailing one released.
struct Stream {
  const SCEV *Base = nullptr;               ///< address in the first iteration
  SmallVector<const SCEV *, 6> Strides;     ///< bytes per iteration, by level
  int64_t Low = 0, High = 0;                ///< bytes of the group around Base
  uint64_t Flags = 0;
  const SCEV *Target = nullptr;             ///< indirect: address for index 0
  int64_t Scale = 0;                        ///< indirect: bytes per index
  Instruction *Example = nullptr;
};

/// A chain of loops, each inside the one before, with the streams in it.
struct Nest {
  SmallVector<Loop *, 6> Path; ///< outermost first
  std::vector<Stream> Streams;
  // What the code generator makes of it:
  GlobalVariable *Site = nullptr;
  AllocaInst *Frame = nullptr;
  SmallVector<Value *, 6> Strips; ///< by level; null where not strip-mined
};

class Inserter {
public:
  Inserter(Function &F, LoopInfo &LI, ScalarEvolution &SE, DominatorTree &DT,
           OptimizationRemarkEmitter &ORE)
      : F(F), LI(LI), SE(SE), DT(DT), ORE(ORE), DL(F.getParent()->getDataLayout()),
        Expander(RUNAHEAD_EXPANDER(SE, DL)), Int64(Type::getInt64Ty(F.getContext())),
        Pointer(bytePointer(F.getContext())) {}

  bool run();

private:
  // Analysis.
  const SCEV *tripCount(Loop *L);
  const SCEV *probablyTaken(Loop *L);
  bool isInvariantIn(const SCEV *S, Loop *L) { return SE.isLoopInvariant(S, L); }
  bool isExpandable(const SCEV *S, Loop *Root);
  void analyse(Instruction &I);
  bool affine(const SCEV *Address, Loop *L, SmallVectorImpl<Loop *> &Path, Stream &S);
  bool indirect(const SCEV *Address, Loop *L, SmallVectorImpl<Loop *> &Path, Stream &S);
  void place(ArrayRef<Loop *> Path, Stream S);
  bool joinsGroup(Stream &Group, const Stream &S);
  uint64_t bytesAtMost(const Nest &N, size_t From);
  bool isTiny(const Nest &N);
  bool isCounted(Loop *L);
  bool isStripMinable(Loop *L);
  bool isSmallObject(Value *Address);

  // Code.
  void expand(Nest &N);
  void insertBegin(Nest &N);
  void keepUnsplit(Loop *L, Value *Count);
  void stripMine(Loop *L);
  bool replaceBlockOperations();
  Value *word(IRBuilder<> &B, AllocaInst *Frame, unsigned Index);
  PHINode *iteration(Loop *L);
  BasicBlock *outside(Loop *L);
  FunctionCallee runtime(StringRef Name, Type *Result, ArrayRef<Type *> Parameters);
  void missed(Instruction &I, StringRef Why);

  Function &F;
  LoopInfo &LI;
  ScalarEvolution &SE;
  DominatorTree &DT;
  OptimizationRemarkEmitter &ORE;
  const DataLayout &DL;
  SCEVExpander Expander;
  Type *Int64;
  Type *Pointer;

  std::vector<Nest> Nests;
  std::map<Loop *, const SCEV *> TripCounts;
  std::map<Loop *, PHINode *> Iterations; ///< number of the iteration, from 0
  std::map<Loop *, Value *> ExpandedTripCounts;
  std::set<Loop *> Guarded; ///< strip-mined, but not counted
  /// Values to store in a frame before its nest begins, word by word.
  std::map<AllocaInst *, std::vector<std::pair<unsigned, Value *>>> Parameters;
  std::map<AllocaInst *, Value *> Extents;
};

void Inserter::missed(Instruction &I, StringRef Why) {
  ORE.emit([&] {
    return OptimizationRemarkMissed(PASS, "NotPrefetched", &I)
           << "reference not prefetched: " << Why;
  });
}

/// The iterations that a counting loop makes if its counter does not overflow,
/// for steps other than one, known or not. Good enough for hints, not for strip-mining.
const SCEV *Inserter::probablyTaken(Loop *L) {
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
const SCEV *Inserter::tripCount(Loop *L) {
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

bool Inserter::isExpandable(const SCEV *S, Loop *Root) {
  return isInvariantIn(S, Root) &&
         isSafeToExpand(Expander, SE, S, Root->getLoopPreheader()->getTerminator());
}

/// Takes an address apart into base and strides, over as many surrounding loops
/// as bounds and strides do not change in.
bool Inserter::affine(const SCEV *Address, Loop *L, SmallVectorImpl<Loop *> &Path,
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
bool Inserter::indirect(const SCEV *Address, Loop *L, SmallVectorImpl<Loop *> &Path,
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
  if (!Index || !Index->isSimple() || LI.getLoopFor(Index->getParent()) != L)
    return false;
  // The run-time layer reads indices that the loop has not got to: they must
  // be ones that it surely gets to, or reading could leave the array.
  if (!L->getExitingBlock() || !DT.dominates(Index->getParent(), L->getLoopLatch()) ||
      isa<SCEVCouldNotCompute>(SE.getBackedgeTakenCount(L)))
    return false;
  for (BasicBlock *Block : L->blocks())
    for (Instruction &I : *Block)
      if (!isGuaranteedToTransferExecutionToSuccessor(&I))
        return false;
  uint64_t Bytes = DL.getTypeStoreSize(Index->getType());
  if (!Index->getType()->isIntegerTy() || (Bytes != 4 && Bytes != 8))
    return false;
  const SCEV *IndexAddress =
      WithoutWrapping(SE).visit(SE.getSCEV(Index->getPointerOperand()));
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

/// Arrays so small that they stay in memory by themselves.
bool Inserter::isSmallObject(Value *Address) {
  const Value *Object = getUnderlyingObject(Address);
  if (const auto *Local = dyn_cast<AllocaInst>(Object)) {
    auto *Count = dyn_cast<ConstantInt>(Local->getArraySize());
    return Count && Count->getZExtValue() * DL.getTypeAllocSize(Local->getAllocatedType()) <=
                        SmallBytes;
  }
  if (const auto *Global = dyn_cast<GlobalVariable>(Object))
    return DL.getTypeAllocSize(Global->getValueType()) <=
           (Global->hasInitializer() && Global->getInitializer()->isNullValue() ? ZeroedBytes
                                                                                 : TinyBytes);
  return false;
}

void Inserter::analyse(Instruction &I) {
  Value *Address = const_cast<Value *>(getLoadStorePointerOperand(&I));
  Loop *L = LI.getLoopFor(I.getParent());
  if (!Address || !L || Address->getType()->getPointerAddressSpace() != 0)
    return;
  if (!SE.isSCEVable(Address->getType()) || isSmallObject(Address))
    return;
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
    if (!indirect(S, L, Path, New)) {
      missed(I, !tripCount(L) ? "the loop's trip count is not known before it"
                              : "its address is neither affine nor indirect through one");
      return;
    }
  }
  if (isa<StoreInst>(I))
    New.Flags |= FlagWrite;
  place(Path, New);
}

/// Group locality: same strides and a constant distance.
bool Inserter::joinsGroup(Stream &Group, const Stream &S) {
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

void Inserter::place(ArrayRef<Loop *> Path, Stream S) {
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
uint64_t Inserter::bytesAtMost(const Nest &N, size_t From) {
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
bool Inserter::isTiny(const Nest &N) { return bytesAtMost(N, 0) < TinyBytes; }

/// Does the loop make a number of iterations that is known before it, and leave
/// at its latch only? Then the strips need no test of their own in each
/// iteration, and are vectorized as the loop would have been.
bool Inserter::isCounted(Loop *L) {
  auto *Branch = dyn_cast<BranchInst>(L->getLoopLatch()->getTerminator());
  return L->getExitingBlock() == L->getLoopLatch() && Branch && Branch->isConditional() &&
         !isa<SCEVCouldNotCompute>(SE.getBackedgeTakenCount(L));
}

/// Strip-mining splits the iterations of a loop and keeps their order.
bool Inserter::isStripMinable(Loop *L) {
  if (!L->isLoopSimplifyForm() ||
      !isSafeToExpand(Expander, SE, tripCount(L), L->getLoopPreheader()->getTerminator()))
    return false;
  // Innermost loops that are left early may be vectorized too, by some
  // versions; a test in each iteration would prevent it.
  if (!isCounted(L) && L->isInnermost() && L->getExitingBlock() != L->getLoopLatch())
    return false;
  // A sum that may be reassociated would be reassociated strip by strip, and
  // come out different in its last bits.
  if (L->isInnermost())
    for (PHINode &Phi : L->getHeader()->phis())
      if (Phi.getType()->isFPOrFPVectorTy())
        for (Value *Incoming : Phi.incoming_values())
          if (auto *I = dyn_cast<FPMathOperator>(Incoming); I && I->hasAllowReassoc())
            return false;
  return true;
}

//===----------------------------------------------------------------------===//
// Code
//===----------------------------------------------------------------------===//

FunctionCallee Inserter::runtime(StringRef Name, Type *Result, ArrayRef<Type *> Parameters) {
  Module &M = *F.getParent();
  FunctionCallee Callee =
      M.getOrInsertFunction(Name, FunctionType::get(Result, Parameters, false));
  if (auto *Declared = dyn_cast<Function>(Callee.getCallee())) {
    Declared->setDoesNotThrow();
    // What hints read of the program's memory does not bind its compiler.
    if (Name == "ra_begin" || Name == "ra_tick")
      Declared->setOnlyAccessesInaccessibleMemOrArgMem();
  }
  return Callee;
}

Value *Inserter::word(IRBuilder<> &B, AllocaInst *Frame, unsigned Index) {
  return B.CreateConstInBoundsGEP2_64(Frame->getAllocatedType(), Frame, 0, Index);
}

/// The loop's own number of its iteration.
PHINode *Inserter::iteration(Loop *L) {
  PHINode *&Phi = Iterations[L];
  if (Phi)
    return Phi;
  BasicBlock *Header = L->getHeader();
  IRBuilder<> B(Header, Header->begin());
  Phi = B.CreatePHI(Int64, 2, "ra.iteration");
  IRBuilder<> AtLatch(L->getLoopLatch()->getTerminator());
  Value *Next = AtLatch.CreateAdd(Phi, ConstantInt::get(Int64, 1), "ra.iteration.next",
                                  /*HasNUW=*/true);
  Phi->addIncoming(ConstantInt::get(Int64, 0), L->getLoopPreheader());
  Phi->addIncoming(Next, L->getLoopLatch());
  return Phi;
}

/// The block that a loop is entered from.
BasicBlock *Inserter::outside(Loop *L) {
  PHINode *Phi = Iterations[L];
  return Phi->getIncomingBlock(Phi->getIncomingBlock(0) == L->getLoopLatch() ? 1 : 0);
}

/// Computes the parameters of a nest before its outermost loop. Changes no
/// control flow, so that the analyses hold for the next nest.
void Inserter::expand(Nest &N) {
  Instruction *At = N.Path.front()->getLoopPreheader()->getTerminator();
  LLVMContext &Context = F.getContext();
  IRBuilder<> Entry(&F.getEntryBlock(), F.getEntryBlock().getFirstInsertionPt());
  auto *FrameType = ArrayType::get(Int64, FrameStreams + StreamWords * N.Streams.size());
  N.Frame = Entry.CreateAlloca(FrameType, nullptr, "ra.frame");

  unsigned Mask = 0;
  // A loop inside that touches less than the shortest strip is not chosen at run
  // time: in one piece it is unrolled and vectorized as it would have been.
  for (size_t Level = 0; Level < N.Path.size(); ++Level)
    if (isStripMinable(N.Path[Level]) && !(Mask && bytesAtMost(N, Level) < SmallBytes))
      Mask |= 1u << Level;

  // The site: a window of addresses in which a small nest needs no call, and
  // what the run-time layer remembers.
  Type *Int32 = Type::getInt32Ty(Context);
  auto *SiteType = StructType::get(
      Context, {Int64, Int64, Int32, Int32, Int32, Int32, Pointer, Pointer, Int64, Int64, Int64});
  IRBuilder<> B(At);
  std::string Name = F.getName().str();
  if (DebugLoc Location = N.Path.front()->getStartLoc())
    Name += ":" + std::to_string(Location.getLine());
  auto *Text = cast<Constant>(B.CreatePointerCast(B.CreateGlobalString(Name, "ra.name"), Pointer));
  auto *Zero = ConstantInt::get(Int64, 0);
  auto Number = [&](uint64_t V) { return ConstantInt::get(Int32, V); };
  auto *Initial = ConstantStruct::get(
      SiteType, {Zero, Zero, Number(N.Path.size()), Number(N.Streams.size()), Number(Mask),
                 Number(0), Text, Constant::getNullValue(Pointer), Zero, Zero, Zero});
  N.Site = new GlobalVariable(*F.getParent(), SiteType, false, GlobalValue::InternalLinkage,
                              Initial, "ra.site");

  auto &Stores = Parameters[N.Frame];
  SmallVector<Value *, 6> Counts;
  for (size_t Level = 0; Level < N.Path.size(); ++Level) {
    Counts.push_back(Expander.expandCodeFor(tripCount(N.Path[Level]), Int64, At));
    Stores.emplace_back(FrameParams + Level, Counts.back());
  }
  auto Address = [&](const SCEV *S) -> Value * {
    Value *V = Expander.expandCodeFor(S, S->getType(), At);
    return V->getType()->isPointerTy() ? IRBuilder<>(At).CreatePtrToInt(V, Int64)
                                       : IRBuilder<>(At).CreateZExtOrTrunc(V, Int64);
  };
  // How much the first streams touch tells a small nest from a large one. One
  // that surely moves no further than another is not looked at.
  constexpr size_t ExtentStreams = 3;
  const size_t Looked = std::min(ExtentStreams, N.Streams.size());
  auto IsCovered = [&](size_t Index) {
    for (size_t Other = 0; Other < Looked; ++Other) {
      bool Covers = Other != Index;
      for (size_t Level = 0; Covers && Level < N.Path.size(); ++Level) {
        const SCEV *Own = N.Streams[Index].Strides[Level], *Its = N.Streams[Other].Strides[Level];
        const auto *A = dyn_cast<SCEVConstant>(Own), *B = dyn_cast<SCEVConstant>(Its);
        Covers = Own == Its || (A && B && A->getAPInt().abs().ult(B->getAPInt().abs()));
      }
      // Of two that move alike the first one is looked at.
      if (Covers && (Other < Index || N.Streams[Index].Strides != N.Streams[Other].Strides))
        return true;
    }
    return false;
  };
  Value *Extent = nullptr;
  for (size_t Index = 0; Index < N.Streams.size(); ++Index) {
    Stream &S = N.Streams[Index];
    const unsigned First = FrameStreams + StreamWords * Index;
    auto Constant = [&](int64_t V) { return ConstantInt::get(Int64, V, true); };
    Stores.emplace_back(First + 0, Address(S.Base));
    Stores.emplace_back(First + 1, Constant(S.Low));
    Stores.emplace_back(First + 2, Constant(S.High));
    Stores.emplace_back(First + 3, Constant(static_cast<int64_t>(S.Flags)));
    Stores.emplace_back(First + 4, S.Target ? Address(S.Target) : Constant(0));
    Stores.emplace_back(First + 5, Constant(S.Scale));
    Value *Sum = nullptr;
    const bool IsLooked = Index < Looked && !IsCovered(Index);
    for (size_t Level = 0; Level < N.Path.size(); ++Level) {
      Value *Stride = Expander.expandCodeFor(S.Strides[Level], Int64, At);
      Stores.emplace_back(First + StreamFixed + Level, Stride);
      if (!IsLooked || S.Strides[Level]->isZero())
        continue;
      IRBuilder<> Arithmetic(At);
      Value *Size = Stride;
      if (!SE.isKnownNonNegative(S.Strides[Level])) {
        Value *Negative = Arithmetic.CreateICmpSLT(Stride, Zero);
        Size = Arithmetic.CreateSelect(Negative, Arithmetic.CreateNeg(Stride), Stride);
      }
      Value *Moved = Arithmetic.CreateMul(Size, Counts[Level]);
      Sum = Sum ? Arithmetic.CreateAdd(Sum, Moved) : Moved;
    }
    if (Sum) {
      IRBuilder<> Arithmetic(At);
      Extent = !Extent ? Sum
                       : Arithmetic.CreateSelect(Arithmetic.CreateICmpUGT(Sum, Extent), Sum,
                                                 Extent);
    }
  }
  Extents[N.Frame] = Extent ? Extent : ConstantInt::get(Int64, SmallBytes);

  for (size_t Level = 0; Level < N.Path.size(); ++Level) {
    Loop *L = N.Path[Level];
    iteration(L);
    if ((Mask & (1u << Level)) && !ExpandedTripCounts.count(L)) {
      ExpandedTripCounts[L] =
          Expander.expandCodeFor(tripCount(L), Int64, L->getLoopPreheader()->getTerminator());
      if (!isCounted(L))
        Guarded.insert(L);
    }
  }

  ORE.emit([&] {
    std::string Levels = std::to_string(N.Path.size()), Mined;
    for (size_t Level = 0; Level < N.Path.size(); ++Level)
      Mined += (Mask & (1u << Level)) ? 's' : '-';
    size_t Indirect = 0;
    for (const Stream &S : N.Streams)
      Indirect += (S.Flags & FlagIndirect) != 0;
    return OptimizationRemark(PASS, "Prefetched", N.Path.front()->getStartLoc(),
                              N.Path.front()->getHeader())
           << "prefetch and release of " << ore::NV("Streams", unsigned(N.Streams.size()))
           << " streams (" << ore::NV("Indirect", unsigned(Indirect)) << " indirect) over "
           << ore::NV("Levels", Levels) << " loops, strip-mined: " << ore::NV("Mask", Mined);
  });
  if (!Mask)
    ORE.emit([&] {
      return OptimizationRemarkMissed(PASS, "NotStripMined", N.Path.front()->getStartLoc(),
                                      N.Path.front()->getHeader())
             << "no loop of this nest can be strip-mined: only its beginning is prefetched";
    });
}

/// Before the outermost loop: unless this is a small nest that is still in the
/// window of the last call, tell the run-time layer, and get the strips.
void Inserter::insertBegin(Nest &N) {
  BasicBlock *Before = outside(N.Path.front());
  Instruction *At = Before->getTerminator();
  IRBuilder<> B(At);
  // A loop may belong to several nests, and ends its strip for all of them:
  // the frame of one whose begin is skipped must say so.
  B.CreateStore(ConstantInt::get(Int64, ~0ull), word(B, N.Frame, FramePlan));
  auto &Stores = Parameters[N.Frame];
  Value *First = nullptr;
  for (auto &[Word, V] : Stores)
    if (Word == FrameStreams)
      First = V;
  auto *SiteType = cast<StructType>(N.Site->getValueType());
  auto Field = [&](unsigned Index) { return B.CreateStructGEP(SiteType, N.Site, Index); };
  Value *Low = B.CreateLoad(Int64, Field(0), "ra.low");
  Value *Span = B.CreateLoad(Int64, Field(1), "ra.span");
  Value *Outside = B.CreateICmpUGE(B.CreateSub(First, Low), Span);
  Value *Large = B.CreateICmpUGE(Extents[N.Frame], ConstantInt::get(Int64, SmallBytes));
  Instruction *Then =
      SplitBlockAndInsertIfThen(B.CreateOr(Large, Outside, "ra.call"), At, /*Unreachable=*/false);
  BasicBlock *ThenBlock = Then->getParent();
  BasicBlock *Tail = ThenBlock->getSingleSuccessor();
  IRBuilder<> T(Then);
  for (auto &[Word, V] : Stores)
    T.CreateStore(V, word(T, N.Frame, Word));
  FunctionCallee Begin = runtime("ra_begin", T.getVoidTy(), {Pointer, Pointer});
  T.CreateCall(Begin, {T.CreatePointerCast(N.Site, Pointer), T.CreatePointerCast(N.Frame, Pointer)});
  IRBuilder<> P(Tail, Tail->begin());
  for (size_t Level = 0; Level < N.Path.size(); ++Level) {
    N.Strips.push_back(nullptr);
    if (!ExpandedTripCounts.count(N.Path[Level]))
      continue;
    Value *Strip = T.CreateLoad(Int64, word(T, N.Frame, FrameStrip + Level), "ra.strip");
    PHINode *Chosen = P.CreatePHI(Int64, 2, "ra.strip");
    Chosen->addIncoming(ConstantInt::get(Int64, ~0ull), Before);
    Chosen->addIncoming(Strip, ThenBlock);
    N.Strips.back() = Chosen;
  }
}

/// Keeps an innermost loop as it is beside the one that is about to be
/// strip-mined, for where one strip is all of it (the paper's "two versions of
/// the loop", section 4.1.1): short loops, and all when everything is in memory.
///
///   before -> copy of the loop | header;  copy's latch -> after
void Inserter::keepUnsplit(Loop *L, Value *Count) {
  BasicBlock *Header = L->getHeader(), *Latch = L->getLoopLatch(), *Before = outside(L);
  BasicBlock *After = L->getExitBlock();
  ValueToValueMapTy Copies;
  SmallVector<BasicBlock *, 8> Blocks;
  for (BasicBlock *Block : L->blocks()) {
    Blocks.push_back(CloneBasicBlock(Block, Copies, ".unsplit", &F));
    Copies[Block] = Blocks.back();
  }
  remapInstructionsInBlocks(Blocks, Copies);
  for (PHINode &Phi : After->phis()) {
    Value *V = Phi.getIncomingValueForBlock(Latch);
    auto Copy = Copies.find(V);
    Phi.addIncoming(Copy == Copies.end() ? V : &*Copy->second, cast<BasicBlock>(Copies[Latch]));
  }
  // The number of the iteration is of no use there.
  PHINode *Number = Iterations[L];
  auto *Next = cast<Instruction>(Number->getIncomingValueForBlock(Latch));
  auto *NumberCopy = cast<Instruction>(Copies[Number]), *NextCopy = cast<Instruction>(Copies[Next]);
  if (NumberCopy->hasOneUse() && NextCopy->hasOneUse()) {
    NumberCopy->replaceAllUsesWith(UndefValue::get(Int64));
    NextCopy->eraseFromParent();
    NumberCopy->eraseFromParent();
  }
  IRBuilder<> B(Before->getTerminator());
  Value *Splits = nullptr;
  for (Nest &N : Nests)
    for (size_t Level = 0; Level < N.Path.size(); ++Level)
      if (N.Path[Level] == L && N.Strips[Level]) {
        Value *Shorter = B.CreateICmpULT(N.Strips[Level], Count, "ra.splits");
        Splits = Splits ? B.CreateOr(Splits, Shorter) : Shorter;
      }
  Instruction *Old = Before->getTerminator();
  B.CreateCondBr(Splits, Header, cast<BasicBlock>(Copies[Header]));
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
void Inserter::stripMine(Loop *L) {
  LLVMContext &Context = F.getContext();
  PHINode *Iteration = Iterations[L];
  BasicBlock *Header = L->getHeader(), *Latch = L->getLoopLatch();
  Value *Next = Iteration->getIncomingValueForBlock(Latch);
  BasicBlock *Before = outside(L);
  Value *Count = ExpandedTripCounts[L];
  if (L->isInnermost() && L->getExitBlock() && L->isSafeToClone())
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

/// Copies and fills of arrays became memcpy and memset before this pass; the
/// run-time layer has its own, which work block by block.
bool Inserter::replaceBlockOperations() {
  SmallVector<MemIntrinsic *, 8> Found;
  for (BasicBlock &Block : F)
    for (Instruction &I : Block)
      if (auto *Memory = dyn_cast<MemIntrinsic>(&I)) {
        if (Memory->isVolatile() || Memory->getDestAddressSpace() != 0)
          continue;
        auto *Length = dyn_cast<ConstantInt>(Memory->getLength());
        if (Length ? Length->getZExtValue() < SmallBytes : isSmallObject(Memory->getRawDest()))
          continue;
        if (auto *Copy = dyn_cast<MemCpyInst>(Memory)) {
          if (Copy->getSourceAddressSpace() == 0 && Copy->getIntrinsicID() == Intrinsic::memcpy)
            Found.push_back(Memory);
        } else if (auto *Set = dyn_cast<MemSetInst>(Memory)) {
          if (Set->getIntrinsicID() == Intrinsic::memset)
            Found.push_back(Memory);
        }
      }
  for (MemIntrinsic *Memory : Found) {
    IRBuilder<> B(Memory);
    Value *Destination = B.CreatePointerCast(Memory->getRawDest(), Pointer);
    Value *Length = B.CreateZExtOrTrunc(Memory->getLength(), Int64);
    if (auto *Copy = dyn_cast<MemCpyInst>(Memory)) {
      FunctionCallee Call = runtime("ra_memcpy", B.getVoidTy(), {Pointer, Pointer, Int64});
      B.CreateCall(Call, {Destination, B.CreatePointerCast(Copy->getRawSource(), Pointer), Length});
    } else {
      FunctionCallee Call = runtime("ra_memset", B.getVoidTy(), {Pointer, B.getInt8Ty(), Int64});
      B.CreateCall(Call, {Destination, cast<MemSetInst>(Memory)->getValue(), Length});
    }
    ORE.emit([&] {
      return OptimizationRemark(PASS, "BlockOperation", Memory)
             << "copy or fill of an array prefetched block by block";
    });
    Memory->eraseFromParent();
  }
  return !Found.empty();
}

bool Inserter::run() {
  if (F.callsFunctionThatReturnsTwice())
    return false;
  for (Loop *L : LI.getLoopsInPreorder())
    for (BasicBlock *Block : L->blocks())
      if (LI.getLoopFor(Block) == L)
        for (Instruction &I : *Block)
          if (isa<LoadInst>(I) ? cast<LoadInst>(I).isSimple()
                               : isa<StoreInst>(I) && cast<StoreInst>(I).isSimple())
            analyse(I);
  std::vector<Nest> Kept;
  for (Nest &N : Nests)
    if (!isTiny(N))
      Kept.push_back(std::move(N));
  Nests = std::move(Kept);

  for (Nest &N : Nests)
    expand(N);
  // From here on the analyses are out of date.
  for (Nest &N : Nests)
    insertBegin(N);
  std::set<Loop *> Done;
  for (Nest &N : Nests)
    for (Loop *L : N.Path)
      if (ExpandedTripCounts.count(L) && Done.insert(L).second)
        stripMine(L);
  const bool Replaced = replaceBlockOperations();
  return !Nests.empty() || Replaced;
}

class RunaheadPass : public PassInfoMixin<RunaheadPass> {
public:
  PreservedAnalyses run(Function &F, FunctionAnalysisManager &Analyses) {
    if (F.hasOptNone() || F.hasFnAttribute(Attribute::Naked))
      return PreservedAnalyses::all();
    auto &LI = Analyses.getResult<LoopAnalysis>(F);
    auto &SE = Analyses.getResult<ScalarEvolutionAnalysis>(F);
    auto &DT = Analyses.getResult<DominatorTreeAnalysis>(F);
    auto &AC = Analyses.getResult<AssumptionAnalysis>(F);
    // Passes between the loop passes and this point leave loops without
    // preheaders and exits of their own.
    bool Changed = false;
    for (Loop *L : LI) {
      Changed |= simplifyLoop(L, &DT, &LI, &SE, &AC, nullptr, /*PreserveLCSSA=*/false);
      Changed |= formLCSSARecursively(*L, DT, &LI, &SE);
    }
    Inserter Work(F, LI, SE, DT, Analyses.getResult<OptimizationRemarkEmitterAnalysis>(F));
    Changed |= Work.run();
    return Changed ? PreservedAnalyses::none() : PreservedAnalyses::all();
  }
};

} // namespace

extern "C" LLVM_ATTRIBUTE_WEAK PassPluginLibraryInfo llvmGetPassPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, PASS, "1", [](PassBuilder &Builder) {
            // After inlining and loop rotation, before the vectorizer: it finds
            // loops in their simplest form and vectorizes the strips.
            Builder.registerVectorizerStartEPCallback(
                [](FunctionPassManager &Passes, OptimizationLevel Level) {
                  if (Level != OptimizationLevel::O0)
                    Passes.addPass(RunaheadPass());
                });
            Builder.registerPipelineParsingCallback(
                [](StringRef Name, FunctionPassManager &Passes,
                   ArrayRef<PassBuilder::PipelineElement>) {
                  if (Name != PASS)
                    return false;
                  Passes.addPass(RunaheadPass());
                  return true;
                });
          }};
}
