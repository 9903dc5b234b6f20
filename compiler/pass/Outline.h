//===- Outline.h - Nests with strips in functions of their own ------------===//
#ifndef RUNAHEAD_OUTLINE_H
#define RUNAHEAD_OUTLINE_H

#include "Versions.h"

#include "llvm/IR/PassManager.h"

/// Metadata of a branch to a nest's begin, beside which the nest is there as it was.
#define BEGIN_MARK "runahead.begin"

namespace runahead {

class OutlinePass : public llvm::PassInfoMixin<OutlinePass> {
public:
  llvm::PreservedAnalyses run(llvm::Module &M, llvm::ModuleAnalysisManager &Analyses);
};

} // namespace runahead

#endif
