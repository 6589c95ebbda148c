// Launches: blocks one after the other, their threads as fibers; and the functions that Python calls.
#include <math.h>
#include <fenv.h>
#include <algorithm>

#include "matrix.h"

namespace rf {

// Arithmetic under another rounding mode. Only this file is compiled for that.
static double rounded(int operation, int mode, bool single, double a, double b, double c) {
    static const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    const int before = fegetround();
    fesetround(modes[mode]);
    volatile double x = a, y = b, z = c, result = 0;
    volatile float fx = static_cast<float>(a), fy = static_cast<float>(b), fz = static_cast<float>(c);
    volatile float single_result = 0;
    switch (operation) {
        case ROUND_ADD: single ? single_result = fx + fy : result = x + y; break;
        case ROUND_MUL: single ? single_result = fx * fy : result = x * y; break;
        case ROUND_FMA: single ? single_result = fmaf(fx, fy, fz) : result = fma(x, y, z); break;
        case ROUND_DIV: single ? single_result = fx / fy : result = x / y; break;
        case ROUND_RCP: single ? single_result = 1 / fx : result = 1 / x; break;
        case ROUND_SQRT: single ? single_result = sqrtf(fx) : result = sqrt(x); break;
        case ROUND_NARROW: single_result = static_cast<float>(x); break;
        case ROUND_S64: {
            volatile int64_t n = bits<int64_t>(a);
            single ? single_result = static_cast<float>(n) : result = static_cast<double>(n);
            break;
        }
        default: {
            volatile uint64_t n = bits<uint64_t>(a);
            single ? single_result = static_cast<float>(n) : result = static_cast<double>(n);
        }
    }
    fesetround(before);
    return single ? static_cast<double>(single_result) : result;
}

static void fail_from_kernel(Thread* thread, uint32_t site, const char* kind, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    note(thread, site, kind, format, arguments);
    va_end(arguments);
    stop_launch();
}

static const Executor executor = {
    &machine, fail_from_kernel, global, shared, generic, fence, barrier, warp_barrier, shuffle, vote, match, reduce,
    active, copy, commit, wait, load_matrix, store_matrix, product, rounded, yield,
};

// ---- launches ----

static void reset_barriers() {
    for (Barrier& b : barriers) {
        b = Barrier{};
    }
}

static void prepare_block(const Dim& index, uint32_t number) {
    machine.block = index;
    block_number = number;
    serial = first_serial + number;
    memset(machine.shared, 0xff, machine.shared_size);
    if (launch.section_bytes) memset(launch.section, 0xff, launch.section_bytes);
    const uint32_t threads = launch.block.x * launch.block.y * launch.block.z;
    warps.assign((threads + LANES - 1) / LANES, Warp{});
    fibers.resize(warps.size() * LANES);
    for (size_t w = 0; w < warps.size(); w++) warps[w].order.seen[w] = 1;
    reset_barriers();
    alive = threads;
    queue.clear();
    queue_start = 0;
    for (uint32_t t = 0; t < threads; t++) {
        Fiber& f = fibers[t];
        f.id = {t % launch.block.x, t / launch.block.x % launch.block.y, t / (launch.block.x * launch.block.y)};
        f.linear = t;
        f.lane = t % LANES;
        f.warp = t / LANES;
        f.jumps = launch.jumps;
        f.carry = 0;
        f.group = 0;
        f.copies.clear();
        f.stack = new_stack(stacks + STACK * (t + 1), run_thread);
        warps[f.warp].present |= 1u << f.lane;
        make_ready(&f);
    }
}

static void report_deadlock() {
    std::map<std::pair<std::string, uint32_t>, int> waiting;
    const Fiber* first = nullptr;
    for (const Fiber& f : fibers)
        if (f.state == WAITING) {
            waiting[{f.waits_for, f.wait_site}]++;
            if (!first) first = &f;
        }
    std::string text = "no thread can go on: ";
    for (const auto& group : waiting) {
        if (text.back() != ' ') text += ", ";
        text += std::to_string(group.second) + " wait in " + group.first.first + " at {site " +
                std::to_string(group.first.second) + "}";
    }
    report->found = 1;
    report->block = machine.block;
    if (first) report->thread = first->id;
    report->site = first ? first->wait_site : 0;
    snprintf(report->kind, sizeof report->kind, "deadlock");
    snprintf(report->text, sizeof report->text, "%s; %u of %u threads have not ended", text.c_str(), alive,
             launch.block.x * launch.block.y * launch.block.z);
}

static void run_block(const Dim& index, uint32_t number) {
    prepare_block(index, number);
    Fiber* first = next_ready();
    machine.running = first;
    rf_switch(&main_stack, first->stack);
    machine.running = nullptr;
    if (!report->found && alive) report_deadlock();
}

static std::vector<uint32_t> block_order(uint32_t blocks) {
    std::vector<uint32_t> order(blocks);
    for (uint32_t i = 0; i < blocks; i++) order[i] = i;
    if (launch.seed == 1) std::reverse(order.begin(), order.end());
    if (launch.seed > 1)
        for (uint32_t i = blocks; i > 1; i--) std::swap(order[i - 1], order[random_number() % i]);
    return order;
}

static bool prepare_launch() {
    if (!make_stacks()) return false;
    if (!shared_memory) {
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        void* memory = mmap(nullptr, SECTION, PROT_READ | PROT_WRITE, flags, -1, 0);
        void* cells = mmap(nullptr, 2 * SECTION * sizeof(Cell), PROT_READ | PROT_WRITE, flags, -1, 0);
        if (memory == MAP_FAILED || cells == MAP_FAILED) return false;
        shared_memory = static_cast<unsigned char*>(memory);
        shared_cells = static_cast<Cell*>(cells);
    }
    machine.shared = shared_memory;
    machine.shared_size = launch.shared_bytes;
    machine.block_size = launch.block;
    machine.grid_size = launch.grid;
    published.clear();
    released.clear();
    random_state = launch.seed;
    return true;
}

// ---- the arena of global memory ----

static bool make_arena() {
    if (arena) return true;
    for (arena_size = 1ull << 36; arena_size >= 1ull << 28; arena_size >>= 2) {
        void* memory = mmap(nullptr, arena_size, PROT_READ | PROT_WRITE,
            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) continue;
        arena = reinterpret_cast<uint64_t>(memory);
        pages.assign(arena_size / PAGE, 0);
        arena_top = PAGE;
        machine.arena_low = arena;
        machine.arena_high = arena + arena_size;
        return true;
    }
    arena_size = 0;
    return false;
}

static std::multimap<uint64_t, uint64_t> spans;  // pages given back: length -> start

static uint64_t take_span(uint64_t length) {
    const auto found = spans.find(length);
    if (found != spans.end()) {
        const uint64_t start = found->second;
        spans.erase(found);
        return start;
    }
    if (arena_top + length > arena_size) return 0;
    const uint64_t start = arena_top;
    arena_top += length;
    return start;
}

static uint64_t span_length(uint64_t size) { return (size + 256 + PAGE - 1) / PAGE * PAGE + PAGE; }

static Cell* make_cells(uint64_t size) {
    void* cells = mmap(nullptr, size * sizeof(Cell), PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return cells == MAP_FAILED ? nullptr : static_cast<Cell*>(cells);
}

}  // namespace rf

using namespace rf;

RF_EXPORT const Executor* rf_executor() { return &executor; }

// Run a kernel. 0: no finding, 1: the report has one, 2: the system has no memory.
RF_EXPORT int rf_launch(const Launch* given, Report* result) {
    launch = *given;
    report = result;
    memset(result, 0, sizeof *result);
    if (!prepare_launch()) return 2;
    const uint32_t blocks = launch.grid.x * launch.grid.y * launch.grid.z;
    first_serial = first_serial ? first_serial : 1;
    for (uint32_t number : block_order(blocks)) {
        const Dim index = {number % launch.grid.x, number / launch.grid.x % launch.grid.y,
                           number / (launch.grid.x * launch.grid.y)};
        run_block(index, number);
        if (report->found) break;
    }
    first_serial += blocks;
    return report->found;
}

// Room for `size` bytes, `shift` bytes after a multiple of 256, far from all other regions. 0: no memory.
RF_EXPORT uint64_t rf_region(uint64_t size, uint64_t shift, int mode, const char* name) {
    if (!make_arena()) return 0;
    const uint64_t start = take_span(span_length(size));
    if (!start) return 0;
    Region region;
    region.address = arena + start + shift;
    region.size = size;
    region.mode = mode;
    region.name = name;
    if (mode == OUTPUT || mode == SCRATCH) region.written.assign(size, false);
    region.cells = size && mode != CONSTANT ? make_cells(size) : nullptr;
    if (size && mode != CONSTANT && !region.cells) return 0;
    size_t slot = 0;
    while (slot < regions.size() && regions[slot].address) slot++;
    if (slot == regions.size()) regions.emplace_back();
    regions[slot] = region;
    for (uint64_t page = start / PAGE; page <= (start + shift + size) / PAGE; page++)
        pages[page] = static_cast<uint32_t>(slot + 1);
    return region.address;
}

RF_EXPORT void rf_free(uint64_t address) {
    Region* region = region_at(address);
    if (!region || region->address != address) return;
    const uint64_t start = (address - arena) / PAGE * PAGE, length = span_length(region->size);
    for (uint64_t page = start / PAGE; page < (start + length) / PAGE; page++) pages[page] = 0;
    madvise(reinterpret_cast<void*>(arena + start), length, MADV_DONTNEED);
    if (region->cells) munmap(region->cells, region->size * sizeof(Cell));
    *region = Region{};
    spans.emplace(length, start);
}

// Change how a region may be used: `mode` of the next launches, without forgetting what has been written.
RF_EXPORT void rf_mode(uint64_t address, int mode) {
    Region* region = region_at(address);
    if (!region || region->address != address) return;
    region->mode = mode;
    if (region->size && mode != CONSTANT && !region->cells) region->cells = make_cells(region->size);
}

// Something else than a kernel wrote these bytes, as a copy from the host does.
RF_EXPORT void rf_wrote(uint64_t address, uint64_t size) {
    Region* region = region_at(address);
    if (!region) return;
    for (uint64_t i = address - region->address; size-- > 0 && i < region->written.size(); i++) region->written[i] = true;
}

// How many bytes nothing has written; `first` gets the first of them.
RF_EXPORT uint64_t rf_unwritten(uint64_t address, uint64_t* first) {
    const Region* region = region_at(address);
    uint64_t count = 0;
    if (!region || region->address != address) return 0;
    for (uint64_t i = region->written.size(); i-- > 0;)
        if (!region->written[i]) {
            count++;
            *first = i;
        }
    return count;
}
