//===- Insertion.cpp - Strip-mined loops with calls of the run-time layer -===//
//
// In this order: the parameters of all nests before their outermost loops, as long
// as the analyses hold; the calls that begin nests; the strips and their ticks
// (Strips.cpp).
//
//===----------------------------------------------------------------------===//

#include "Insertion.h"
#include "Outline.h"
#include "Promises.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/Analysis/ScalarEvolutionExpressions.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/Transforms/Utils/BasicBlockUtils.h"

using namespace llvm;
using namespace runahead;

Value *runahead::frozen(IRBuilder<> &B, Value *V) {
  return isGuaranteedNotToBeUndefOrPoison(V) ? V : B.CreateFreeze(V);
}

Value *runahead::opaque(IRBuilder<> &B, Value *V) {
  Type *T = V->getType();
  // An operand of assembly is what fits a register, as not all integers do (_BitInt(33)).
  const unsigned Bits = T->getIntegerBitWidth();
  if (isGuaranteedNotToBeUndefOrPoison(V) || (Bits != 32 && Bits != 64))
    return frozen(B, V);
  auto *Same = InlineAsm::get(FunctionType::get(T, {T}, false), "", "=r,0",
                              /*hasSideEffects=*/false);
  CallInst *Call = B.CreateCall(Same, {V});
  Call->setDoesNotThrow();
  Call->setDoesNotAccessMemory();
  Call->addFnAttr(Attribute::WillReturn);
  Call->addRetAttr(Attribute::NoUndef);
  return Call;
}

FunctionCallee Insertion::runtime(StringRef Name, Type *Result, ArrayRef<Type *> Parameters) {
  Module &M = *F.getParent();
  FunctionCallee Callee =
      M.getOrInsertFunction(Name, FunctionType::get(Result, Parameters, false));
  if (auto *Declared = dyn_cast<Function>(Callee.getCallee())) {
    Declared->setDoesNotThrow();
    // What hints read of the program's memory does not bind its compiler.
    if (Name == "ra_begin_2" || Name == "ra_tick")
      Declared->setOnlyAccessesInaccessibleMemOrArgMem();
  }
  return Callee;
}

Value *Insertion::word(IRBuilder<> &B, AllocaInst *Frame, unsigned Index) {
  return B.CreateConstInBoundsGEP2_64(Frame->getAllocatedType(), Frame, 0, Index);
}

/// The loop's own number of its iteration.
PHINode *Insertion::iteration(Loop *L) {
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
BasicBlock *Insertion::outside(Loop *L) {
  PHINode *Phi = Iterations[L];
  return Phi->getIncomingBlock(Phi->getIncomingBlock(0) == L->getLoopLatch() ? 1 : 0);
}

/// Does another of the first `Looked` streams surely move as far as this one? Of
/// two that move alike the first one does not.
bool Insertion::hasWiderMove(const Nest &N, size_t Index, size_t Looked) {
  const auto &Own = N.Streams[Index].Strides;
  for (size_t Other = 0; Other < Looked; ++Other) {
    const auto &Its = N.Streams[Other].Strides;
    bool Covers = Other != Index && (Other < Index || Own != Its);
    for (size_t Level = 0; Covers && Level < N.Path.size(); ++Level) {
      const auto *A = dyn_cast<SCEVConstant>(Own[Level]), *B = dyn_cast<SCEVConstant>(Its[Level]);
      Covers = Own[Level] == Its[Level] ||
               (A && B && A->getAPInt().abs().ult(B->getAPInt().abs()));
    }
    if (Covers)
      return true;
  }
  return false;
}

/// The address of a computed reference, from values at `Known` and the number of the
/// iteration. Computes nothing that could trap, or not be hinted.
Value *Insertion::compute(IRBuilder<> &B, const Computation &C, ValueToValueMapTy &Known) {
  for (Instruction *Step : C.Steps) {
    Instruction *Copy = Step->clone();
    for (Use &U : Copy->operands())
      if (auto Found = Known.find(U.get()); Found != Known.end())
        U.set(Found->second);
    const unsigned Operation = Copy->getOpcode();
    const bool IsSigned = Operation == Instruction::SDiv || Operation == Instruction::SRem;
    if (IsSigned || Operation == Instruction::UDiv || Operation == Instruction::URem) {
      // In an iteration that does not come to it, the divisor may be anything.
      Value *By = frozen(B, Copy->getOperand(1)), *One = ConstantInt::get(By->getType(), 1);
      Value *Traps = IsSigned ? B.CreateICmpULE(B.CreateAdd(By, One), One) : B.CreateIsNull(By);
      Copy->setOperand(1, B.CreateSelect(Traps, One, By));
    }
    if (auto *Call = dyn_cast<CallBase>(Copy))
      Call->setAttributes({}); // noundef, say
    Copy->dropPoisonGeneratingFlags();
    Copy->dropUnknownNonDebugMetadata();
    Copy->setDebugLoc(DebugLoc());
    Known[Step] = B.Insert(Copy);
  }
  return B.CreateFreeze(B.CreatePtrToInt(Known[C.Address], Int64));
}

/// The parameters of a computed reference: its first address and a function for the
/// others. What that takes from before the loop is in the frame, from `At` on.
void Insertion::expandComputed(const Nest &N, const Stream &S, unsigned First, unsigned &At) {
  const Computation &C = S.Computed;
  LLVMContext &Context = F.getContext();
  Instruction *Begin = N.Path.front()->getLoopPreheader()->getTerminator();
  auto *Address = Function::Create(FunctionType::get(Int64, {Pointer, Int64}, false),
                                   GlobalValue::InternalLinkage, "ra.address", F.getParent());
  Address->setDoesNotThrow();
  IRBuilder<> Before(Begin), B(BasicBlock::Create(Context, "", Address));
  auto &Stores = Parameters[N.Frame];
  Stores.emplace_back(First + 4, ConstantExpr::getPtrToInt(Address, Int64));
  Stores.emplace_back(First + 5, Before.CreatePtrToInt(word(Before, N.Frame, At), Int64));
  Value *Values = B.CreatePointerCast(Address->getArg(0), wordPointer(Context));
  unsigned Index = 0;
  auto Pass = [&](Value *V) {
    IRBuilder<> Cast(Begin);
    V = V->getType()->isPointerTy() ? Cast.CreatePtrToInt(V, Int64)
                                    : Cast.CreateSExtOrTrunc(V, Int64);
    Stores.emplace_back(At++, Cast.CreateFreeze(V));
    return B.CreateLoad(Int64, B.CreateConstInBoundsGEP1_64(Int64, Values, Index++));
  };
  auto As = [&](Value *V, Type *T) {
    return T->isPointerTy() ? B.CreateIntToPtr(V, T) : B.CreateTrunc(V, T);
  };
  ValueToValueMapTy Here, There;
  for (Value *V : C.Values)
    There[V] = As(Pass(V), V->getType());
  for (PHINode *Counter : C.Counters) {
    const auto *AR = cast<SCEVAddRecExpr>(SE.getSCEV(Counter));
    const SCEV *Step = AR->getStepRecurrence(SE);
    Here[Counter] = Expander.expandCodeFor(AR->getStart(), Counter->getType(), Begin);
    Value *Start = Pass(Here[Counter]);
    Value *Moved = B.CreateMul(Pass(Expander.expandCodeFor(Step, Step->getType(), Begin)),
                               Address->getArg(1));
    There[Counter] = As(B.CreateAdd(Start, Moved), Counter->getType());
  }
  B.CreateRet(compute(B, C, There));
  Stores.emplace_back(First + 0, compute(Before, C, Here));
}

/// Numbers of iterations divide by what is known not to be zero where the program
/// itself comes to it. Before the nest it may be undefined, and anything therefore.
void Insertion::guardDivisions() {
  for (Instruction *I : Expander.getAllInsertedInstructions()) {
    if (I->getOpcode() != Instruction::UDiv ||
        isGuaranteedNotToBeUndefOrPoison(I->getOperand(1)))
      continue;
    IRBuilder<> B(I);
    Value *By = opaque(B, I->getOperand(1));
    I->setOperand(1, B.CreateSelect(B.CreateIsNull(By), ConstantInt::get(By->getType(), 1), By));
  }
}

/// Computes the parameters of a nest before its outermost loop. Changes no
/// control flow, so that the analyses hold for the next nest.
void Insertion::expand(Nest &N) {
  Instruction *At = N.Path.front()->getLoopPreheader()->getTerminator();
  LLVMContext &Context = F.getContext();
  IRBuilder<> Entry(&F.getEntryBlock(), F.getEntryBlock().getFirstInsertionPt());
  unsigned Words = FrameStreams + StreamWords * N.Streams.size(), Computed = Words;
  for (const Stream &S : N.Streams)
    Words += S.Computed.Values.size() + 2 * S.Computed.Counters.size();
  auto *FrameType = ArrayType::get(Int64, Words);
  N.Frame = Entry.CreateAlloca(FrameType, nullptr, "ra.frame");

  // The site: a window of addresses in which a small nest needs no call, and
  // what the run-time layer remembers.
  Type *Int32 = Type::getInt32Ty(Context);
  auto *SiteType = StructType::get(
      Context,
      {Int64, Int64, Int32, Int32, Int32, Int32, Pointer, Pointer, Int64, Int64, Int64, Int64,
       Int64, Int64, Int64});
  IRBuilder<> B(At);
  std::string Name = F.getName().str();
  if (DebugLoc Location = N.Path.front()->getStartLoc())
    Name += ":" + std::to_string(Location.getLine());
  auto *Text = cast<Constant>(B.CreatePointerCast(B.CreateGlobalString(Name, "ra.name"), Pointer));
  auto *Zero = ConstantInt::get(Int64, 0);
  auto Number = [&](uint64_t V) { return ConstantInt::get(Int32, V); };
  auto *Initial = ConstantStruct::get(
      SiteType, {Zero, Zero, Number(N.Path.size()), Number(N.Streams.size()), Number(N.StripMined),
                 Number(0), Text, Constant::getNullValue(Pointer), Zero, Zero, Zero, Zero,
                 Zero, Zero, Zero});
  N.Site = new GlobalVariable(*F.getParent(), SiteType, false, GlobalValue::InternalLinkage,
                              Initial, "ra.site");

  auto &Stores = Parameters[N.Frame];
  for (size_t Level = 0; Level < N.Path.size(); ++Level)
    Stores.emplace_back(FrameParams + Level,
                        Expander.expandCodeFor(Found.tripCount(N.Path[Level]), Int64, At));
  auto Address = [&](const SCEV *S) -> Value * {
    Value *V = Expander.expandCodeFor(S, S->getType(), At);
    return V->getType()->isPointerTy() ? IRBuilder<>(At).CreatePtrToInt(V, Int64)
                                       : IRBuilder<>(At).CreateZExtOrTrunc(V, Int64);
  };
  // How much the first streams touch tells a small nest from a large one.
  constexpr size_t ExtentStreams = 3;
  const size_t Looked = std::min(ExtentStreams, N.Streams.size());
  Value *Extent = nullptr;
  for (size_t Index = 0; Index < N.Streams.size(); ++Index) {
    Stream &S = N.Streams[Index];
    const unsigned First = FrameStreams + StreamWords * Index;
    auto Constant = [&](int64_t V) { return ConstantInt::get(Int64, V, true); };
    if (S.Flags & FlagComputed) {
      expandComputed(N, S, First, Computed);
    } else {
      // The program branches on the first one.
      IRBuilder<> Before(At);
      Value *Base = Address(S.Base);
      Stores.emplace_back(First + 0, Index == 0 ? opaque(Before, Base) : Base);
      Stores.emplace_back(First + 4, S.Target ? Address(S.Target) : Constant(0));
      Stores.emplace_back(First + 5, Constant(S.Scale));
    }
    Stores.emplace_back(First + 1, Constant(S.Low));
    Stores.emplace_back(First + 2, Constant(S.High));
    Stores.emplace_back(First + 3, Constant(static_cast<int64_t>(S.Flags)));
    Value *Sum = nullptr;
    const bool IsLooked = Index < Looked && !hasWiderMove(N, Index, Looked);
    for (size_t Level = 0; Level < N.Path.size(); ++Level) {
      Value *Stride = Expander.expandCodeFor(S.Strides[Level], Int64, At);
      Stores.emplace_back(First + StreamFixed + Level, Stride);
      if (!IsLooked || S.Strides[Level]->isZero())
        continue;
      const SCEV *Way = Found.moved(S.Strides[Level], N.Path[Level]);
      Value *Moved = Expander.expandCodeFor(Way, Int64, At);
      IRBuilder<> Arithmetic(At);
      if (!SE.isKnownNonNegative(S.Strides[Level])) {
        Value *Negative = Arithmetic.CreateICmpSLT(Moved, Zero);
        Moved = Arithmetic.CreateSelect(Negative, Arithmetic.CreateNeg(Moved), Moved);
      }
      Sum = Sum ? Arithmetic.CreateAdd(Sum, Moved) : Moved;
    }
    if (Sum) {
      IRBuilder<> Arithmetic(At);
      Extent = !Extent ? Sum
                       : Arithmetic.CreateSelect(Arithmetic.CreateICmpUGT(Sum, Extent), Sum,
                                                 Extent);
    }
  }
  IRBuilder<> Last(At);
  Extents[N.Frame] = Extent ? opaque(Last, Extent) : ConstantInt::get(Int64, SmallBytes);

  for (size_t Level = 0; Level < N.Path.size(); ++Level) {
    Loop *L = N.Path[Level];
    iteration(L);
    if ((N.StripMined & (1u << Level)) && !ExpandedTripCounts.count(L)) {
      Instruction *Outside = L->getLoopPreheader()->getTerminator();
      Value *Count = Expander.expandCodeFor(Found.tripCount(L), Int64, Outside);
      // Where it is exact, what is branched on is what the program's own condition was.
      if (!Found.isCounted(L)) {
        IRBuilder<> Before(Outside);
        Count = opaque(Before, Count);
        Guarded.insert(L);
      }
      ExpandedTripCounts[L] = Count;
    }
  }
  guardDivisions();

  ORE.emit([&] {
    std::string Levels = std::to_string(N.Path.size()), Mined;
    for (size_t Level = 0; Level < N.Path.size(); ++Level)
      Mined += (N.StripMined & (1u << Level)) ? 's' : '-';
    size_t Indirect = 0, Computed = 0;
    for (const Stream &S : N.Streams) {
      Computed += (S.Flags & FlagComputed) != 0;
      Indirect += (S.Flags & (FlagIndirect | FlagComputed)) == FlagIndirect;
    }
    return OptimizationRemark(PASS, "Prefetched", N.Path.front()->getStartLoc(),
                              N.Path.front()->getHeader())
           << "prefetch and release of " << ore::NV("Streams", unsigned(N.Streams.size()))
           << " streams (" << ore::NV("Indirect", unsigned(Indirect)) << " indirect"
           << (Computed ? ", " + std::to_string(Computed) + " computed" : "") << ") over "
           << ore::NV("Levels", Levels) << " loops, strip-mined: " << ore::NV("Mask", Mined);
  });
  if (!N.StripMined)
    ORE.emit([&] {
      return OptimizationRemarkMissed(PASS, "NotStripMined", N.Path.front()->getStartLoc(),
                                      N.Path.front()->getHeader())
             << "no loop of this nest can be strip-mined: only its beginning is prefetched";
    });
}

/// And leaves to the program's own instructions what they promise.
void Insertion::expandAll() {
  if (Nests.empty())
    return;
  Promises Own(F);
  for (Nest &N : Nests)
    expand(N);
  SmallVector<Value **, 64> Recorded;
  for (auto &[Frame, Stores] : Parameters)
    for (auto &[Word, V] : Stores)
      Recorded.push_back(&V);
  for (auto &[Frame, Extent] : Extents)
    Recorded.push_back(&Extent);
  for (auto &[L, Count] : ExpandedTripCounts)
    Recorded.push_back(&Count);
  Own.restore(SE, Recorded);
}

/// Is the run-time layer to be told of a nest? Of a small one that is still in the
/// window of the last call it is not.
Value *Insertion::isToBegin(IRBuilder<> &B, const Nest &N) {
  Value *First = nullptr;
  for (auto &[Word, V] : Parameters[N.Frame])
    if (Word == FrameStreams)
      First = V;
  auto *SiteType = cast<StructType>(N.Site->getValueType());
  auto Field = [&](unsigned Index) { return B.CreateStructGEP(SiteType, N.Site, Index); };
  Value *Low = B.CreateLoad(Int64, Field(0), "ra.low");
  Value *Span = B.CreateLoad(Int64, Field(1), "ra.span");
  Value *Outside = B.CreateICmpUGE(B.CreateSub(First, Low), Span);
  Value *Large = B.CreateICmpUGE(Extents[N.Frame], ConstantInt::get(Int64, SmallBytes));
  return B.CreateOr(Large, Outside, "ra.call");
}

/// Before the outermost loop: tells the run-time layer, if `Condition` or always
/// where there is none, and gets the strips. Is any of them shorter than its loop?
Value *Insertion::insertBegin(Nest &N, Value *Condition) {
  BasicBlock *Before = outside(N.Path.front());
  Instruction *At = Before->getTerminator();
  IRBuilder<> B(At);
  // A loop may belong to several nests, and ends its strip for all of them:
  // the frame of one whose begin is skipped must say so.
  if (Condition)
    B.CreateStore(ConstantInt::get(Int64, ~0ull), word(B, N.Frame, FramePlan));
  Instruction *Then =
      Condition ? SplitBlockAndInsertIfThen(Condition, At, /*Unreachable=*/false) : At;
  BasicBlock *ThenBlock = Then->getParent();
  IRBuilder<> T(Then);
  for (auto &[Word, V] : Parameters[N.Frame])
    T.CreateStore(V, word(T, N.Frame, Word));
  FunctionCallee Begin = runtime("ra_begin_2", Int64, {Pointer, Pointer});
  Value *Splits = T.CreateCall(
      Begin, {T.CreatePointerCast(N.Site, Pointer), T.CreatePointerCast(N.Frame, Pointer)});
  // What it is where the call is skipped, too.
  auto Otherwise = [&](Value *V, uint64_t Without, const char *Name) -> Value * {
    if (!Condition)
      return V;
    BasicBlock *Tail = ThenBlock->getSingleSuccessor();
    PHINode *Chosen = IRBuilder<>(Tail, Tail->begin()).CreatePHI(V->getType(), 2, Name);
    Chosen->addIncoming(ConstantInt::get(V->getType(), Without), Before);
    Chosen->addIncoming(V, ThenBlock);
    return Chosen;
  };
  for (size_t Level = 0; Level < N.Path.size(); ++Level) {
    N.Strips.push_back(nullptr);
    if (!ExpandedTripCounts.count(N.Path[Level]))
      continue;
    Value *Strip = T.CreateLoad(Int64, word(T, N.Frame, FrameStrip + Level), "ra.strip");
    N.Strips.back() = Otherwise(Strip, ~0ull, "ra.strip");
  }
  return Otherwise(Splits, 0, "ra.splits");
}

/// Copies and fills of arrays became memcpy and memset before this pass; the
/// run-time layer has its own, which work block by block.
bool Insertion::replaceBlockOperations() {
  SmallVector<MemIntrinsic *, 8> Operations;
  for (BasicBlock &Block : F)
    for (Instruction &I : Block)
      if (auto *Memory = dyn_cast<MemIntrinsic>(&I)) {
        if (Memory->isVolatile() || Memory->getDestAddressSpace() != 0)
          continue;
        auto *Length = dyn_cast<ConstantInt>(Memory->getLength());
        if (Length ? Length->getZExtValue() < SmallBytes : Found.isSmallObject(Memory->getRawDest()))
          continue;
        if (auto *Copy = dyn_cast<MemCpyInst>(Memory)) {
          if (Copy->getSourceAddressSpace() == 0 && Copy->getIntrinsicID() == Intrinsic::memcpy)
            Operations.push_back(Memory);
        } else if (auto *Set = dyn_cast<MemSetInst>(Memory)) {
          if (Set->getIntrinsicID() == Intrinsic::memset)
            Operations.push_back(Memory);
        }
      }
  for (MemIntrinsic *Memory : Operations) {
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
  return !Operations.empty();
}

/// The loops of a nest that get strips, a bit per level.
unsigned Insertion::stripMined(const Nest &N) {
  unsigned Mask = 0;
  // A loop inside that touches less than the shortest strip is not chosen at run
  // time: in one piece it is unrolled and vectorized as it would have been.
  for (size_t Level = 0; Level < N.Path.size(); ++Level)
    if (Found.isStripMinable(N.Path[Level]) && !(Mask && Found.bytesAtMost(N, Level) < SmallBytes))
      Mask |= 1u << Level;
  return Mask;
}

/// The functions that come to this one, as far as this module shows: that call it, or
/// hand it on, and so on. It is one of them where it is recursive.
static std::set<const Function *> callers(const Function &F) {
  constexpr size_t UsesMax = 10000; // of very large modules not all are looked at
  std::set<const Function *> Known;
  SmallVector<const Function *, 8> Next{&F};
  size_t Uses = 0;
  while (!Next.empty())
    for (const User *U : Next.pop_back_val()->users()) {
      if (++Uses > UsesMax)
        return Known;
      const auto *I = dyn_cast<Instruction>(U);
      if (I && Known.insert(I->getFunction()).second)
        Next.push_back(I->getFunction());
    }
  return Known;
}

/// A frame is up to 3 KB of a function's stack as long as the function runs, whether
/// it comes to the nest or not: recursion would not get as deep. So of a function that
/// is recursive only nests are hinted that will be in functions of their own, and do
/// not go on with the recursion from there.
void Insertion::leaveRecursive() {
  if (Nests.empty() || F.doesNotRecurse())
    return;
  const std::set<const Function *> Callers = callers(F);
  if (!Callers.count(&F))
    return;
  auto GoesOn = [&](const Instruction &I) {
    return any_of(I.operands(), [&](const Use &U) {
      const auto *Called = dyn_cast<Function>(U.get());
      return Called && Callers.count(Called);
    });
  };
  SetVector<Loop *> Left;
  for (const Nest &N : Nests) {
    Loop *Root = N.Path.front();
    if (!isKeptWhole(Root) || any_of(Root->blocks(), [&](const BasicBlock *Block) {
          return !isOutlinable(*Block) || any_of(*Block, GoesOn);
        }))
      Left.insert(Root);
  }
  for (Loop *Root : Left)
    ORE.emit([&] {
      return OptimizationRemarkMissed(PASS, "Recursive", Root->getStartLoc(), Root->getHeader())
             << "nest not prefetched: its function is recursive, and would need more stack";
    });
  erase_if(Nests, [&](const Nest &N) { return Left.count(N.Path.front()) != 0; });
}

bool Insertion::run() {
  Nests = Found.find();
  for (Nest &N : Nests)
    N.StripMined = stripMined(N);
  leaveRecursive();
  expandAll();
  // From here on the analyses are out of date.
  std::set<Loop *> Begun, Done;
  for (Nest &N : Nests) {
    Loop *Root = N.Path.front();
    if (!Begun.insert(Root).second)
      continue;
    SmallVector<Nest *, 4> Its;
    for (Nest &Other : Nests)
      if (Other.Path.front() == Root)
        Its.push_back(&Other);
    insertBegins(Root, Its);
  }
  for (Nest &N : Nests)
    for (Loop *L : N.Path)
      if (ExpandedTripCounts.count(L) && Done.insert(L).second)
        stripMine(L);
  sinkParameters();
  const bool Replaced = replaceBlockOperations();
  return !Nests.empty() || Replaced;
}
