// Reads operations from standard input and has torch's own allocator perform them:
//
//   t BYTES (of the card; first) | p FRACTION | a ID BYTES STREAM | f ID | e (empty the cache)
//
// Prints "a ID ADDRESS", "o ID" where memory ran out, and at the end
// "= PEAK_RESERVED RESERVED PEAK_ALLOCATED ALLOCATED RETRIES OOMS".
#include <c10/cuda/CUDACachingAllocator.h>

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <unordered_map>

extern "C" void stub_set_total(uint64_t);

namespace c10::cuda::detail {
__attribute__((weak)) void init_p2p_access_cache(int64_t);  // releases since 2.8 ask for it
}

namespace allocator = c10::cuda::CUDACachingAllocator;

int main() {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  std::unordered_map<uint64_t, void*> live;
  bool started = false;
  char what = 0;
  while (std::scanf(" %c", &what) == 1) {
    uint64_t id = 0, bytes = 0, stream = 0;
    double fraction = 0;
    if (what == 't') {
      if (std::scanf("%" SCNu64, &bytes) != 1) return 3;
      stub_set_total(bytes);
      continue;
    }
    if (!started) {
      if (c10::cuda::detail::init_p2p_access_cache) c10::cuda::detail::init_p2p_access_cache(1);
      allocator::get()->init(1);
      started = true;
    }
    if (what == 'p') {
      if (std::scanf("%lf", &fraction) != 1) return 3;
      allocator::get()->setMemoryFraction(fraction, 0);
    } else if (what == 'e') {
      allocator::get()->emptyCache();
    } else if (what == 'f') {
      if (std::scanf("%" SCNu64, &id) != 1) return 3;
      if (auto found = live.find(id); found != live.end()) {
        allocator::get()->raw_delete(found->second);
        live.erase(found);
      }
    } else if (what == 'a') {
      if (std::scanf("%" SCNu64 "%" SCNu64 "%" SCNu64, &id, &bytes, &stream) != 3) return 3;
      try {
        live[id] = allocator::get()->raw_alloc_with_stream(bytes, (cudaStream_t)stream);
        std::printf("a %" PRIu64 " %" PRIu64 "\n", id, (uint64_t)live[id]);
      } catch (const c10::OutOfMemoryError&) {
        std::printf("o %" PRIu64 "\n", id);
      }
    } else {
      return 3;
    }
  }
  auto stats = allocator::get()->getDeviceStats(0);
  auto &reserved = stats.reserved_bytes[0], &allocated = stats.allocated_bytes[0];
  std::printf("= %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 "\n",
              (int64_t)reserved.peak, (int64_t)reserved.current, (int64_t)allocated.peak,
              (int64_t)allocated.current, (int64_t)stats.num_alloc_retries,
              (int64_t)stats.num_ooms);
  std::fflush(stdout);
  std::_Exit(0);  // the libraries' own endings expect a device
}
