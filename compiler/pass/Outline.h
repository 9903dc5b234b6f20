//===- Outline.h - Nests with strips in functions of their own ------------===//
#ifndef RUNAHEAD_OUTLINE_H
#define RUNAHEAD_OUTLINE_H

#include "Versions.h"

#include "llvm/IR/BasicBlock.h"
#include "llvm/IR/PassManager.h"

/// Metadata of a branch to a nest's begin, beside which the nest is there as it was.
#define BEGIN_MARK "runahead.begin"

namespace runahead {

/// May this block go into a function of its own? Not what is about the frame of the
/// function that it is in.
bool isOutlinable(const llvm::BasicBlock &Block);

class OutlinePass : public llvm::PassInfoMixin<OutlinePass> {
public:
  llvm::PreservedAnalyses run(llvm::Module &M, llvm::ModuleAnalysisManager &Analyses);
};

} // namespace runahead

#endif
