// Memory that threads share: where it is, who has touched each byte, and whether an access is ordered after the others.
#pragma once
#include <string.h>

#include "fibers.h"
#include "numbers.h"

namespace rf {

// ---- records of accesses ----

struct Record {
    uint32_t serial;  // of the block, over all launches; 0: none
    uint32_t clock, site;
    uint8_t warp, lane;
};

constexpr uint8_t SEVERAL_LANES = 255;
enum Flag : uint8_t { IN_FLIGHT = 1, BY_ATOMIC = 2, WRITTEN = 4 };

struct Cell {  // of one byte; the two latest readers stand for all
    Record write, read, earlier_read;
    uint8_t flags;
};

static bool ordered(const Fiber* self, const Record& record) {
    const Warp& warp = warps[self->warp];
    if (record.serial == serial) {
        if (record.warp == self->warp) return record.lane == self->lane || record.clock < warp.synced;
        return warp.order.seen[record.warp] >= record.clock;
    }
    if (record.serial < first_serial) return true;
    const uint32_t block = record.serial - first_serial;
    if (!warp.order.acquired.has(block)) return false;
    const auto found = published.find(block);
    return found != published.end() && found->second[record.warp] >= record.clock;
}

[[noreturn]] static void report_race(Fiber* self, uint32_t site, const char* now, const Record& record,
                                     const char* then, const char* where, size_t offset) {
    if (record.serial == serial)
        fail(self, site, "race", "%s of %s byte %zu, %s by warp %u lane %u at {site %u} without a barrier between",
             now, where, offset, then, record.warp, record.lane, record.site);
    fail(self, site, "race", "%s of %s byte %zu, %s by block %u at {site %u} without a fence and an atomic between",
         now, where, offset, then, record.serial - first_serial, record.site);
}

static void record_read(Cell& cell, const Fiber* self, uint32_t clock, uint32_t site) {
    Record& last = cell.read;
    const bool same_warp = last.serial == serial && last.warp == self->warp;
    if (last.serial && !same_warp) cell.earlier_read = last;
    const bool shared_clock = same_warp && last.clock == clock && last.lane != self->lane;
    const uint8_t lane = shared_clock ? SEVERAL_LANES : static_cast<uint8_t>(self->lane);
    last = {serial, clock, site, static_cast<uint8_t>(self->warp), lane};
}

// Check one byte and note the access. `where` names the memory, `offset` the byte in it.
static inline void touch(Fiber* self, Cell& cell, int access, uint32_t site, const char* where, size_t offset) {
    const int kind = access & KIND;
    const uint32_t clock = warps[self->warp].order.seen[self->warp];
    const bool strong = access & STRONG || kind == ATOMIC;
    if (cell.write.serial && !(strong && cell.flags & BY_ATOMIC) && !ordered(self, cell.write))
        report_race(self, site, kind == READ ? "read" : "write", cell.write, "written", where, offset);
    if (kind == READ) {
        if (!strong) record_read(cell, self, clock, site);
        return;
    }
    for (const Record* read : {&cell.read, &cell.earlier_read})
        if (read->serial && !ordered(self, *read)) report_race(self, site, "write", *read, "read", where, offset);
    cell.write = {serial, clock, site, static_cast<uint8_t>(self->warp), static_cast<uint8_t>(self->lane)};
    cell.read.serial = cell.earlier_read.serial = 0;
    cell.flags = static_cast<uint8_t>(WRITTEN | (strong ? BY_ATOMIC : 0));
}

static const char* verb(int access) {
    const int kind = access & KIND;
    return kind == READ ? "read" : kind == WRITE ? "write" : "atomic";
}

// ---- shared memory ----

constexpr uint32_t SHARED_MOST = 232448;  // 227 KB, what a block may have on compute capability 9.0

constexpr uint32_t SECTION = 1 << 18;  // offset of static variables that are not in the block's window

static unsigned char* shared_memory;
static Cell* shared_cells;  // of the window, then of the section

static Cell* shared_cell(size_t offset) {
    Cell* cell = shared_cells + offset;
    if (cell->write.serial != serial && cell->write.serial) *cell = Cell{};  // an earlier block's
    if (cell->read.serial != serial) cell->read.serial = 0;
    if (cell->earlier_read.serial != serial) cell->earlier_read.serial = 0;
    return cell;
}

static void touch_shared(Fiber* self, size_t offset, uint32_t size, int access, uint32_t site) {
    for (size_t i = offset; i < offset + size; i++) {
        Cell& cell = *shared_cell(i);
        if (cell.flags & IN_FLIGHT)
            fail(self, site, "in-flight",
                 "%s of shared byte %zu while the cp.async of {site %u} into it has not been waited for",
                 verb(access), i, cell.write.site);
        if ((access & KIND) != WRITE && !(cell.flags & WRITTEN))
            fail(self, site, "uninitialised", "%s of shared byte %zu, which no thread of the block has written",
                 verb(access), i);
        touch(self, cell, access, site, "shared", i);
    }
}

static unsigned char* shared(Thread* thread, uint32_t address, uint32_t size, int access, uint32_t site) {
    Fiber* self = static_cast<Fiber*>(thread);
    const uint32_t offset = address - SHARED_BASE;
    const bool in_section = offset >= SECTION && launch.section_bytes;
    const uint32_t place = in_section ? offset - SECTION : offset;
    const uint32_t bytes = in_section ? static_cast<uint32_t>(launch.section_bytes) : machine.shared_size;
    if (place >= bytes || size > bytes - place)
        fail(self, site, "out-of-bounds", "%s of %u bytes at shared byte %d; the block has %u", verb(access), size,
             static_cast<int32_t>(place), bytes);
    if (address & (size - 1))
        fail(self, site, "misaligned", "%s of %u bytes at shared byte %u", verb(access), size, offset);
    if ((access & KIND) == ATOMIC) yield(thread);
    if (launch.checks) touch_shared(self, offset, size, access, site);
    return (in_section ? launch.section : machine.shared) + place;
}

// ---- global memory ----

enum Mode { CONSTANT, IN_OUT, OUTPUT, SCRATCH };

struct Region {
    uint64_t address, size;
    int mode;
    std::string name;
    std::vector<bool> written;  // empty: all of it
    Cell* cells;
};

constexpr uint64_t PAGE = 1 << 16;
static uint64_t arena, arena_size, arena_top;
static std::vector<uint32_t> pages;  // page -> index of its region + 1
static std::vector<Region> regions;

static Region* region_at(uint64_t address) {
    const uint64_t page = (address - arena) / PAGE;
    return address - arena < arena_size && pages[page] ? &regions[pages[page] - 1] : nullptr;
}

static void write_global(Fiber* self, Region& region, size_t offset, uint32_t size, uint32_t site) {
    if (region.mode == CONSTANT)
        fail(self, site, "const-write", "write to byte %zu of %s, which is read-only", offset, region.name.c_str());
    if (!region.written.empty())
        for (size_t i = offset; i < offset + size; i++) region.written[i] = true;
}

static void read_global(Fiber* self, Region& region, size_t offset, uint32_t size, int access, uint32_t site) {
    if (region.written.empty()) return;
    for (size_t i = offset; i < offset + size; i++)
        if (!region.written[i])
            fail(self, site, "unwritten", "%s of byte %zu of %s, which nothing has written", verb(access), i,
                 region.name.c_str());
}

// An atomic is where blocks meet: it hands on what the warp has fenced, and takes what others handed on here.
static void meet_blocks(Fiber* self, uint64_t address, int access) {
    Order& order = warps[self->warp].order;
    auto& blocks = released[address];
    for (uint32_t block : blocks)
        if (block != block_number) (access & ACQUIRE ? order.acquired : order.pending).add(block);
    if ((access & KIND) == READ) return;
    auto& clocks = published[block_number];
    clocks.resize(WARPS);
    const Clock& visible = access & RELEASE ? order.seen : order.fenced;
    for (int i = 0; i < WARPS; i++) clocks[i] = std::max(clocks[i], visible[i]);
    if (access & RELEASE) order.seen[self->warp]++;
    if (blocks.empty() || blocks.back() != block_number) blocks.push_back(block_number);
}

static void touch_global(Fiber* self, Region& region, size_t offset, uint32_t size, int access, uint32_t site) {
    if ((access & KIND) != WRITE) read_global(self, region, offset, size, access, site);
    if ((access & KIND) != READ) write_global(self, region, offset, size, site);
    if (region.mode == CONSTANT) return;
    if ((access & KIND) == ATOMIC || access & STRONG) meet_blocks(self, region.address + offset, access);
    for (size_t i = offset; i < offset + size; i++) {
        const Record& write = region.cells[i].write;
        if (access & NON_COHERENT && write.serial >= first_serial && write.serial)
            fail(self, site, "non-coherent",
                 "read of byte %zu of %s through the read-only cache (const __restrict__ or __ldg), which this launch "
                 "wrote at {site %u}", i, region.name.c_str(), write.site);
        touch(self, region.cells[i], access, site, region.name.c_str(), i);
    }
}

static bool inside(uint64_t address, uint32_t size, const void* start, uint64_t bytes) {
    const uint64_t offset = address - reinterpret_cast<uint64_t>(start);
    return offset < bytes && size <= bytes - offset;
}

static unsigned char* global(Thread* thread, uint64_t address, uint32_t size, int access, uint32_t site) {
    Fiber* self = static_cast<Fiber*>(thread);
    unsigned char* place = reinterpret_cast<unsigned char*>(address);
    Region* region = region_at(address);
    if (!region) {
        if (inside(address, size, launch.statics, launch.static_bytes)) return place;
        if ((access & KIND) == READ && inside(address, size, launch.arguments, launch.argument_bytes)) return place;
        if (address < PAGE)
            fail(self, site, "out-of-bounds", "%s of %u bytes at address %llu: a null pointer, or one from an integer",
                 verb(access), size, static_cast<unsigned long long>(address));
        fail(self, site, "out-of-bounds", "%s of %u bytes at an address that belongs to no argument", verb(access),
            size);
    }
    const uint64_t offset = address - region->address;
    if (offset >= region->size || size > region->size - offset)
        fail(self, site, "out-of-bounds", "%s of %u bytes at byte %lld of %s, which has %llu", verb(access), size,
             static_cast<long long>(offset), region->name.c_str(), static_cast<unsigned long long>(region->size));
    if (address & (size - 1))
        fail(self, site, "misaligned", "%s of %u bytes at byte %llu of %s, whose address is not a multiple of %u",
             verb(access), size, static_cast<unsigned long long>(offset), region->name.c_str(), size);
    if ((access & KIND) == ATOMIC || access & STRONG) yield(thread);
    if (launch.checks) touch_global(self, *region, offset, size, access, site);
    return place;
}

static unsigned char* generic(Thread* thread, uint64_t address, uint32_t size, int access, uint32_t site) {
    const uint64_t offset = address - reinterpret_cast<uint64_t>(shared_memory);
    if (offset < SECTION) return shared(thread, static_cast<uint32_t>(offset) + SHARED_BASE, size, access, site);
    const uint64_t in_section = address - reinterpret_cast<uint64_t>(launch.section);
    if (in_section < launch.section_bytes)
        return shared(thread, static_cast<uint32_t>(in_section) + SECTION + SHARED_BASE, size, access, site);
    if (address - machine.stack_low < machine.stack_high - machine.stack_low)
        return reinterpret_cast<unsigned char*>(address);
    return global(thread, address, size, access, site);
}

// Memory fences of the device are what other blocks can build on; __threadfence_block orders nothing by itself.
static void fence(Thread* thread, int scope) {
    if (!scope) return;
    const int warp = static_cast<int>(static_cast<Fiber*>(thread)->warp);
    Order& order = warps[warp].order;
    memcpy(order.fenced, order.seen, sizeof order.fenced);
    order.acquired.join(order.pending);
    order.pending.blocks.clear();
    order.seen[warp]++;
}

// ---- cp.async: bytes land when they are waited for, never earlier ----

static void copy(Thread* thread, uint32_t to, uint64_t from, uint32_t size, uint32_t used, uint32_t site) {
    Fiber* self = static_cast<Fiber*>(thread);
    Copy pending = {shared(thread, to, size, WRITE, site), {}, size, to - SHARED_BASE, self->group, site};
    if (used > size) fail(self, site, "out-of-bounds", "cp.async of %u bytes takes %u from its source", size, used);
    if (used) {
        if (from & (size - 1)) fail(self, site, "misaligned", "cp.async source is not a multiple of %u", size);
        for (uint32_t i = 0; i < used;) {  // the part in use need not be a power of two
            const uint32_t step = (used - i) & ~(used - i - 1);
            const uint32_t piece = std::min(step, i ? i & ~(i - 1) : size);
            memcpy(pending.data + i, global(thread, from + i, piece, READ, site), piece);
            i += piece;
        }
    }
    memset(pending.to, 0xff, size);
    if (launch.checks)
        for (uint32_t i = 0; i < size; i++) shared_cell(to - SHARED_BASE + i)->flags |= IN_FLIGHT;
    self->copies.push_back(pending);
}

static void commit(Thread* thread) { static_cast<Fiber*>(thread)->group++; }

static void wait(Thread* thread, uint32_t pending, uint32_t site) {
    Fiber* self = static_cast<Fiber*>(thread);
    size_t kept = 0;
    for (const Copy& c : self->copies) {
        if (c.group + pending >= self->group) {
            self->copies[kept++] = c;
            continue;
        }
        if (launch.checks) {
            for (uint32_t i = 0; i < c.size; i++) shared_cell(c.offset + i)->flags &= static_cast<uint8_t>(~IN_FLIGHT);
            touch_shared(self, c.offset, c.size, WRITE, site);
        }
        memcpy(c.to, c.data, c.size);
    }
    self->copies.resize(kept);
}

}  // namespace rf
