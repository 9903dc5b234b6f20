//===- Insertion.h - Strip-mined loops with calls of the run-time layer ---===//
//
// Writes into a function what locality analysis found there.
//
//===----------------------------------------------------------------------===//

#ifndef RUNAHEAD_INSERTION_H
#define RUNAHEAD_INSERTION_H

#include "Locality.h"

#include "llvm/IR/IRBuilder.h"
#include "llvm/Transforms/Utils/ValueMapper.h"

#include <set>

namespace runahead {

/// What the program would not come to where it is looked at may be undefined there,
/// which must not become the program's.
llvm::Value *frozen(llvm::IRBuilder<> &B, llvm::Value *V);

/// The same for integers of which nobody is to know any more what they are computed from: a
/// freeze goes up to that, round the loops of the program, and takes from its instructions
/// what they promise.
llvm::Value *opaque(llvm::IRBuilder<> &B, llvm::Value *V);

class Insertion {
public:
  Insertion(llvm::Function &F, llvm::ScalarEvolution &SE, llvm::OptimizationRemarkEmitter &ORE,
            Locality &Found)
      : F(F), SE(SE), ORE(ORE), Found(Found), DL(F.getParent()->getDataLayout()),
        Expander(RUNAHEAD_EXPANDER(SE, DL)), Int64(llvm::Type::getInt64Ty(F.getContext())),
        Pointer(bytePointer(F.getContext())) {}

  /// Inserts the prefetches and releases of all nests that are found; was there
  /// anything to insert?
  bool run();

private:
  unsigned stripMined(const Nest &N);
  void leaveRecursive();
  bool hasWiderMove(const Nest &N, size_t Index, size_t Looked);
  void expand(Nest &N);
  void expandAll();
  void guardDivisions();
  llvm::Value *compute(llvm::IRBuilder<> &B, const Computation &C, llvm::ValueToValueMapTy &Known);
  void expandComputed(const Nest &N, const Stream &S, unsigned First, unsigned &At);
  llvm::Value *isToBegin(llvm::IRBuilder<> &B, const Nest &N);
  void insertBegins(llvm::Loop *Root, llvm::ArrayRef<Nest *> Its);
  llvm::Value *insertBegin(Nest &N, llvm::Value *Condition);
  void sinkParameters();
  bool isKeptWhole(llvm::Loop *Root);
  bool isCopyable(llvm::Loop *L);
  llvm::BasicBlock *copyUnsplit(llvm::Loop *L);
  void keepUnsplit(llvm::Loop *L, llvm::Value *Count);
  void stripMine(llvm::Loop *L);
  bool replaceBlockOperations();
  llvm::Value *word(llvm::IRBuilder<> &B, llvm::AllocaInst *Frame, unsigned Index);
  llvm::PHINode *iteration(llvm::Loop *L);
  llvm::BasicBlock *outside(llvm::Loop *L);
  llvm::FunctionCallee runtime(llvm::StringRef Name, llvm::Type *Result,
                               llvm::ArrayRef<llvm::Type *> Parameters);

  llvm::Function &F;
  llvm::ScalarEvolution &SE;
  llvm::OptimizationRemarkEmitter &ORE;
  Locality &Found;
  const llvm::DataLayout &DL;
  llvm::SCEVExpander Expander;
  llvm::Type *Int64;
  llvm::Type *Pointer;

  std::vector<Nest> Nests;
  std::map<llvm::Loop *, llvm::PHINode *> Iterations; ///< number of the iteration, from 0
  std::map<llvm::Loop *, llvm::Value *> ExpandedTripCounts;
  std::set<llvm::Loop *> Guarded; ///< strip-mined, but not counted
  /// Where the ways part to a nest that is told of and to its copy, and where the former begins.
  std::vector<std::pair<llvm::BasicBlock *, llvm::BasicBlock *>> Begins;
  std::set<llvm::Loop *> KeptWhole; ///< outermost ones that there is a copy of
  /// Values to store in a frame before its nest begins, word by word.
  std::map<llvm::AllocaInst *, std::vector<std::pair<unsigned, llvm::Value *>>> Parameters;
  std::map<llvm::AllocaInst *, llvm::Value *> Extents;
};

} // namespace runahead

#endif
