//===- Versions.h - Small differences between the versions of LLVM --------===//
//
// 14 to 22, so that the other files are the same for all.
//
//===----------------------------------------------------------------------===//

#ifndef RUNAHEAD_VERSIONS_H
#define RUNAHEAD_VERSIONS_H

#include "llvm/Config/llvm-config.h"
#include "llvm/IR/DerivedTypes.h"
#if LLVM_VERSION_MAJOR >= 17
#include "llvm/TargetParser/Triple.h"
#else
#include "llvm/ADT/Triple.h"
#endif
#if LLVM_VERSION_MAJOR >= 22
#include "llvm/Plugins/PassPlugin.h"
#else
#include "llvm/Passes/PassPlugin.h"
#endif
#include "llvm/Transforms/Utils/ScalarEvolutionExpander.h"

#if LLVM_VERSION_MAJOR >= 22
#define RUNAHEAD_EXPANDER(SE, DL) SE, "ra"
#else
#define RUNAHEAD_EXPANDER(SE, DL) SE, DL, "ra"
#endif

/// The last arguments of a CodeExtractor: what functions are called.
#if LLVM_VERSION_MAJOR >= 17
#define OUTLINE_SUFFIX , nullptr, "strips"
#else
#define OUTLINE_SUFFIX , "strips"
#endif

/// What a callback for the last passes of a module is called with.
#if LLVM_VERSION_MAJOR >= 20
#define LAST_PASSES(Passes, Level)                                                                 \
  llvm::ModulePassManager &Passes, llvm::OptimizationLevel Level, llvm::ThinOrFullLTOPhase
#else
#define LAST_PASSES(Passes, Level) llvm::ModulePassManager &Passes, llvm::OptimizationLevel Level
#endif

namespace runahead {

inline llvm::PointerType *bytePointer(llvm::LLVMContext &Context) {
#if LLVM_VERSION_MAJOR >= 15
  return llvm::PointerType::get(Context, 0);
#else
  return llvm::Type::getInt8PtrTy(Context);
#endif
}

inline llvm::PointerType *wordPointer(llvm::LLVMContext &Context) {
#if LLVM_VERSION_MAJOR >= 15
  return llvm::PointerType::get(Context, 0);
#else
  return llvm::Type::getInt64PtrTy(Context);
#endif
}

inline bool isSafeToExpand(llvm::SCEVExpander &Expander, llvm::ScalarEvolution &SE,
                           const llvm::SCEV *S, llvm::Instruction *At) {
#if LLVM_VERSION_MAJOR >= 15
  (void)SE;
  return Expander.isSafeToExpandAt(S, At);
#else
  (void)Expander;
  return llvm::isSafeToExpandAt(S, At, SE);
#endif
}

} // namespace runahead

#endif
