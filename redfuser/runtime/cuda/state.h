// What the executor knows of the launch that runs: one at a time in a process, one block after the other.
#pragma once
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "executor.h"

namespace rf {

constexpr int LANES = 32, WARPS = 32, BARRIERS = 16;
constexpr uint32_t FULL = 0xffffffffu;

typedef uint32_t Clock[WARPS];

enum State { READY, WAITING, DONE };

struct Copy {  // one cp.async whose bytes have not landed
    unsigned char* to;
    unsigned char data[16];
    uint32_t size, offset, group, site;
};

struct Fiber : Thread {
    void* stack;
    State state;
    const char* waits_for;
    uint32_t wait_site, result;
    uint32_t group;
    std::vector<Copy> copies;
};

struct Rendezvous {  // lanes of a warp that have come to one collective instruction
    uint32_t mask, arrived, site;
    Collective work;
    const char* name;
    void* arguments[LANES];
};

// The order between blocks: a block releases what its fences cover with an atomic, another acquires it with an atomic
// on the same address and a fence.
struct Acquired {
    std::vector<uint64_t> blocks;  // one bit per block of the grid
    void add(uint32_t block) {
        if (blocks.size() <= block / 64) blocks.resize(block / 64 + 1);
        blocks[block / 64] |= 1ull << block % 64;
    }
    bool has(uint32_t block) const { return block / 64 < blocks.size() && blocks[block / 64] >> block % 64 & 1; }
    void join(const Acquired& other) {
        if (other.blocks.size() > blocks.size()) blocks.resize(other.blocks.size());
        for (size_t i = 0; i < other.blocks.size(); i++) blocks[i] |= other.blocks[i];
    }
};

struct Order {  // what has happened before the next access of a warp
    Clock seen;             // of each warp of the block
    Clock fenced;           // the part of it that a fence has made visible to other blocks
    Acquired pending, acquired;
};

struct Warp {
    Rendezvous meetings[8];
    uint32_t present, exited;
    uint32_t synced;  // the clock after the last point where all lanes are ordered
    Order order;
};

struct Barrier {
    int arrived, need, kind, value;
    uint32_t site;
    bool any;
    Order joined;
    std::vector<Fiber*> waiting;
    std::vector<int> arrivals;  // warps that went on without waiting
};

struct Report {
    int found;
    char kind[32];
    char text[1536];
    uint32_t site;
    Dim block, thread;
    uint64_t matrix_loads, matrix_conflicts;
};

struct Launch {
    KernelFunction kernel;
    unsigned char* arguments;
    uint64_t argument_bytes;
    unsigned char* statics;
    uint64_t static_bytes;
    unsigned char* section;  // static shared variables of a kernel that was not translated from PTX
    uint64_t section_bytes;
    Dim grid, block;
    uint32_t shared_bytes;
    uint64_t seed;
    int64_t jumps;
    int32_t checks;
};

static Machine machine;
static Report* report;
static Launch launch;
static std::vector<Fiber> fibers;
static std::vector<Warp> warps;
static Barrier barriers[BARRIERS];
static uint32_t alive, block_number;  // number: of the block in its grid
static uint32_t first_serial, serial;  // of the blocks of all launches: records of earlier launches are in order
static std::unordered_map<uint32_t, std::vector<uint32_t>> published;  // block -> clock of each warp that it released
static std::unordered_map<uint64_t, std::vector<uint32_t>> released;   // address of an atomic -> blocks that released

static inline Fiber* current() { return static_cast<Fiber*>(machine.running); }

[[noreturn]] static void stop_launch();

static void note(Thread* thread, uint32_t site, const char* kind, const char* format, va_list arguments) {
    report->found = 1;
    report->site = site;
    snprintf(report->kind, sizeof report->kind, "%s", kind);
    vsnprintf(report->text, sizeof report->text, format, arguments);
    report->block = machine.block;
    if (thread) report->thread = thread->id;
}

// End the launch with a finding. A text names an instruction as {site n}: the Python side knows its line.
[[noreturn]] __attribute__((format(printf, 4, 5)))
static void fail(Thread* thread, uint32_t site, const char* kind, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    note(thread, site, kind, format, arguments);
    va_end(arguments);
    stop_launch();
}

static uint64_t random_state;

static uint64_t random_number() {  // splitmix64
    uint64_t z = random_state += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

}  // namespace rf
