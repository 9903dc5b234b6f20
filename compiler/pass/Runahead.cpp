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
// order in which it does. Of nests and innermost loops it keeps a version as it was.
//
// One source for LLVM 14 to 22 (Versions.h), not linked against LLVM (the host
// has it). Locality.cpp finds what to prefetch, Insertion.cpp writes the calls,
// Strips.cpp the strips, Outline.cpp moves them out of the way; here they are registered.
//
//===----------------------------------------------------------------------===//

#include "Insertion.h"
#include "Outline.h"

#include "llvm/Analysis/AssumptionCache.h"
#include "llvm/IR/PassManager.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Transforms/Utils/LoopSimplify.h"
#include "llvm/Transforms/Utils/LoopUtils.h"

using namespace llvm;

namespace {

/// The run-time layer is there for x86-64 on Linux, with pointers of 64 bits and a C library
/// like the one that it was compiled for, which Android's is not. The same command may compile
/// for other machines, too: code for a graphics card, or of BPF.
bool hasRuntime(const Module &M) {
  const Triple Target(M.getTargetTriple());
  return Target.getArch() == Triple::x86_64 && Target.isOSLinux() && !Target.isAndroid() &&
         M.getDataLayout().getPointerSizeInBits(0) == 64;
}

class RunaheadPass : public PassInfoMixin<RunaheadPass> {
public:
  PreservedAnalyses run(Function &F, FunctionAnalysisManager &Analyses) {
    // What the layer writes into frames is uninitialized to MemorySanitizer.
    if (F.hasOptNone() || F.hasFnAttribute(Attribute::Naked) ||
        F.hasFnAttribute(Attribute::SanitizeMemory) || !hasRuntime(*F.getParent()))
      return PreservedAnalyses::all();
    auto &LI = Analyses.getResult<LoopAnalysis>(F);
    auto &SE = Analyses.getResult<ScalarEvolutionAnalysis>(F);
    auto &DT = Analyses.getResult<DominatorTreeAnalysis>(F);
    auto &TLI = Analyses.getResult<TargetLibraryAnalysis>(F);
    auto &AC = Analyses.getResult<AssumptionAnalysis>(F);
    // Passes between the loop passes and this point leave loops without
    // preheaders and exits of their own.
    bool Changed = false;
    for (Loop *L : LI) {
      Changed |= simplifyLoop(L, &DT, &LI, &SE, &AC, nullptr, /*PreserveLCSSA=*/false);
      Changed |= formLCSSARecursively(*L, DT, &LI, &SE);
    }
    auto &ORE = Analyses.getResult<OptimizationRemarkEmitterAnalysis>(F);
    runahead::Locality Found(F, LI, SE, DT, TLI, ORE);
    Changed |= runahead::Insertion(F, SE, ORE, Found).run();
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
            Builder.registerOptimizerLastEPCallback([](LAST_PASSES(Passes, Level)) {
              if (Level != OptimizationLevel::O0)
                Passes.addPass(runahead::OutlinePass());
            });
            Builder.registerPipelineParsingCallback(
                [](StringRef Name, ModulePassManager &Passes,
                   ArrayRef<PassBuilder::PipelineElement>) {
                  if (Name != PASS "-outline")
                    return false;
                  Passes.addPass(runahead::OutlinePass());
                  return true;
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
