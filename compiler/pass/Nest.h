//===- Nest.h - What is prefetched, and how the run-time layer is told ----===//
//
// What locality analysis finds (Locality.h) and insertion (Insertion.h) writes into
// the program: nests of loops with their streams, and the layout of the frames in
// which the run-time layer gets them.
//
//===----------------------------------------------------------------------===//

#ifndef RUNAHEAD_NEST_H
#define RUNAHEAD_NEST_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/ScalarEvolution.h"
#include "llvm/IR/Instructions.h"

#include <cstdint>
#include <vector>

/// Name of the pass, and of its remarks.
#define PASS "runahead"

namespace runahead {

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
constexpr uint64_t FlagWrite = 1, FlagIndirect = 2, FlagIndexSigned = 4, FlagComputed = 8;
constexpr unsigned FlagIndexBytesShift = 8;
/// Bytes that a computed reference counts for in an iteration.
constexpr int64_t ComputedBytes = 8;

/// A nest that touches no more than this is not worth a call by itself; the
/// run-time layer sees it only when it has moved out of the last window.
constexpr uint64_t SmallBytes = 64 << 10;

//===----------------------------------------------------------------------===//
// What is prefetched
//===----------------------------------------------------------------------===//

/// How an address is computed from the number of the iteration: instructions
/// without memory or side effects, operands first.
struct Computation {
  llvm::SmallVector<llvm::Instruction *, 8> Steps;
  llvm::SmallVector<llvm::PHINode *, 2> Counters; ///< affine in the number of the iteration
  llvm::SmallVector<llvm::Value *, 4> Values;     ///< of before the loop
  llvm::Value *Address = nullptr;
};

/// References that share their data (group locality): the leading one is
/// prefetched, the trailing one released.
struct Stream {
  const llvm::SCEV *Base = nullptr;              ///< address in the first iteration
  llvm::SmallVector<const llvm::SCEV *, 6> Strides; ///< bytes per iteration, by level
  int64_t Low = 0, High = 0;                     ///< bytes of the group around Base
  uint64_t Flags = 0;
  const llvm::SCEV *Target = nullptr;            ///< indirect: address for index 0; computed: address
  int64_t Scale = 0;                             ///< indirect: bytes per index
  Computation Computed;
  llvm::Instruction *Example = nullptr;
};

/// A chain of loops, each inside the one before, with the streams in it.
struct Nest {
  llvm::SmallVector<llvm::Loop *, 6> Path;       ///< outermost first
  std::vector<Stream> Streams;
  // What the code generator makes of it:
  unsigned StripMined = 0;                       ///< loops that get strips, a bit per level
  llvm::GlobalVariable *Site = nullptr;
  llvm::AllocaInst *Frame = nullptr;
  llvm::SmallVector<llvm::Value *, 6> Strips;    ///< by level; null where not strip-mined
};

} // namespace runahead

#endif
