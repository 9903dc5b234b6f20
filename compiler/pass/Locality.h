//===- Locality.h - Locality analysis -------------------------------------===//
//
// Finds the references of a function that a prefetch is inserted for, after Mowry,
// Demke and Krieger, section 2.3: nests of loops, the streams in them, and which
// of the loops may be strip-mined.
//
//===----------------------------------------------------------------------===//

#ifndef RUNAHEAD_LOCALITY_H
#define RUNAHEAD_LOCALITY_H

#include "Nest.h"
#include "Versions.h"

#include "llvm/Analysis/OptimizationRemarkEmitter.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/Module.h"

#include <map>

namespace runahead {

class Locality {
public:
  Locality(llvm::Function &F, llvm::LoopInfo &LI, llvm::ScalarEvolution &SE,
           llvm::DominatorTree &DT, const llvm::TargetLibraryInfo &TLI,
           llvm::OptimizationRemarkEmitter &ORE)
      : F(F), LI(LI), SE(SE), DT(DT), TLI(TLI), ORE(ORE), DL(F.getParent()->getDataLayout()),
        Expander(RUNAHEAD_EXPANDER(SE, DL)), Int64(llvm::Type::getInt64Ty(F.getContext())) {}

  /// The nests that are worth prefetches.
  std::vector<Nest> find();

  const llvm::SCEV *tripCount(llvm::Loop *L);
  const llvm::SCEV *moved(const llvm::SCEV *Stride, llvm::Loop *L);
  uint64_t bytesAtMost(const Nest &N, size_t From);
  bool isCounted(llvm::Loop *L);
  bool isStripMinable(llvm::Loop *L);
  bool isSmallObject(llvm::Value *Address);

private:
  const llvm::SCEV *probablyTaken(llvm::Loop *L);
  bool isInvariantIn(const llvm::SCEV *S, llvm::Loop *L) { return SE.isLoopInvariant(S, L); }
  bool isExpandable(const llvm::SCEV *S, llvm::Loop *Root);
  void analyse(llvm::Instruction &I);
  bool affine(const llvm::SCEV *Address, llvm::Loop *L,
              llvm::SmallVectorImpl<llvm::Loop *> &Path, Stream &S);
  bool indirect(const llvm::SCEV *Address, llvm::Loop *L,
                llvm::SmallVectorImpl<llvm::Loop *> &Path, Stream &S);
  bool computed(llvm::Value *Address, llvm::Loop *L, llvm::SmallVectorImpl<llvm::Loop *> &Path,
                Stream &S);
  bool collect(llvm::Value *V, llvm::Loop *L, Computation &C);
  void place(llvm::ArrayRef<llvm::Loop *> Path, Stream S);
  bool joinsGroup(Stream &Group, const Stream &S);
  bool isTiny(const Nest &N);
  bool mayDifferInVectors(const llvm::Instruction &I);
  void missed(llvm::Instruction &I, llvm::StringRef Why);

  llvm::Function &F;
  llvm::LoopInfo &LI;
  llvm::ScalarEvolution &SE;
  llvm::DominatorTree &DT;
  const llvm::TargetLibraryInfo &TLI;
  llvm::OptimizationRemarkEmitter &ORE;
  const llvm::DataLayout &DL;
  llvm::SCEVExpander Expander; ///< asked what it could expand only
  llvm::Type *Int64;

  std::vector<Nest> Nests;
  std::map<llvm::Loop *, const llvm::SCEV *> TripCounts;
};

} // namespace runahead

#endif
