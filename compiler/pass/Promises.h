//===- Promises.h - What the program's own instructions promise -----------===//

#ifndef RUNAHEAD_PROMISES_H
#define RUNAHEAD_PROMISES_H

#include "Versions.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/Analysis/ScalarEvolution.h"
#include "llvm/IR/Function.h"

#include <vector>

namespace runahead {

/// The flags of a function's instructions: no overflow, say.
class Promises {
public:
  explicit Promises(llvm::Function &F);
  Promises(const Promises &) = delete;
  Promises &operator=(const Promises &) = delete;
  ~Promises();

  /// Gives them back to the instructions that an expander took them from because it used
  /// these for what it computed. That, and what `Recorded` points to, uses copies without.
  void restore(llvm::ScalarEvolution &SE, llvm::ArrayRef<llvm::Value **> Recorded);

private:
  bool isOwn(const llvm::Value *V) const;
  void look(llvm::Value *V, llvm::ScalarEvolution &SE);
  llvm::Value *without(llvm::Value *V);

  llvm::Function &F;
  std::vector<std::pair<llvm::Instruction *, llvm::Instruction *>> Kept; ///< and as it was
  llvm::DenseSet<const llvm::Value *> Own;                 ///< of the program
  llvm::DenseSet<const llvm::Value *> Dropped;             ///< have lost theirs
  llvm::DenseSet<const llvm::Value *> Looked[2];           ///< at, before and behind a phi
  llvm::DenseMap<const llvm::Value *, llvm::Value *> Copies;
};

} // namespace runahead

#endif
