// What translated kernels and the executor know of each other.
//
// A kernel is a C++ function that one fiber per CUDA thread runs. It asks the executor for every access to memory that
// other threads can see and for everything that threads do together. `site` is the number of an instruction: the
// Python side has the source lines.
#pragma once
#include <stddef.h>
#include <stdint.h>

#define RF_EXPORT extern "C" __attribute__((visibility("default")))

namespace rf {

struct Dim { uint32_t x, y, z; };

constexpr uint32_t SHARED_BASE = 1024;  // address of the first shared byte: 0 is no object

struct Thread {
    Dim id;
    uint32_t linear;
    uint32_t lane, warp;
    int64_t jumps;  // backward jumps that are left before the thread counts as caught in a loop
    uint32_t carry;  // condition code of add.cc and its like
};

struct Machine {
    Dim block, block_size, grid_size;
    unsigned char* shared;
    uint32_t shared_size;
    uint64_t stack_low, stack_high;  // memory of fibers: a kernel's own variables
    uint64_t arena_low, arena_high;  // all global memory that a kernel may be given
    Thread* running;
};

enum Access { READ = 0, WRITE = 1, ATOMIC = 2, KIND = 3, STRONG = 4, NON_COHERENT = 8, ACQUIRE = 16, RELEASE = 32 };
enum Shuffle { SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_XOR, SHUFFLE_INDEX };
enum BarrierKind { PLAIN, ANY, ALL, COUNT };
enum WarpReduction { SUM, MIN_U, MAX_U, MIN_S, MAX_S, AND, OR, XOR };
enum Operand { OP_F16, OP_BF16, OP_TF32, OP_E4M3, OP_E5M2, OP_S8, OP_U8 };
enum Rounded { ROUND_ADD, ROUND_MUL, ROUND_FMA, ROUND_DIV, ROUND_RCP, ROUND_SQRT, ROUND_NARROW, ROUND_S64, ROUND_U64 };

typedef void (*Collective)(void** arguments, uint32_t mask);

// One matrix product of a warp: d (m x n) = a (m x k) * b (k x n) + c, each in the registers of 32 lanes.
struct Product {
    uint32_t* d;
    const uint32_t *a, *b, *c;
    int k;
    Operand left, right;
    bool integer, saturate, half;  // half: c and d are f16 pairs
};

struct Executor {
    Machine* machine;
    void (*fail)(Thread*, uint32_t site, const char* kind, const char* format, ...);
    unsigned char* (*global)(Thread*, uint64_t address, uint32_t size, int access, uint32_t site);
    unsigned char* (*shared)(Thread*, uint32_t address, uint32_t size, int access, uint32_t site);
    unsigned char* (*generic)(Thread*, uint64_t address, uint32_t size, int access, uint32_t site);
    void (*fence)(Thread*, int scope);  // 0: block, 1: device
    uint32_t (*barrier)(Thread*, int id, int count, int kind, bool value, bool wait, uint32_t site);
    void (*warp_barrier)(Thread*, uint32_t mask, uint32_t site);
    uint32_t (*shuffle)(Thread*, int mode, uint32_t mask, uint32_t value, uint32_t b, uint32_t c, bool* valid,
        uint32_t site);
    uint32_t (*vote)(Thread*, uint32_t mask, bool value, uint32_t site);
    uint32_t (*match)(Thread*, uint32_t mask, uint64_t value, bool all, bool* equal, uint32_t site);
    uint32_t (*reduce)(Thread*, int operation, uint32_t mask, uint32_t value, uint32_t site);
    uint32_t (*active)(Thread*);
    void (*copy)(Thread*, uint32_t to, uint64_t from, uint32_t size, uint32_t used, uint32_t site);
    void (*commit)(Thread*);
    void (*wait)(Thread*, uint32_t pending, uint32_t site);
    void (*load_matrix)(Thread*, uint32_t address, int count, bool transposed, uint32_t* out, uint32_t site);
    void (*store_matrix)(Thread*, uint32_t address, int count, bool transposed, const uint32_t* in, uint32_t site);
    void (*product)(Thread*, const Product*, uint32_t site);
    double (*rounded)(int operation, int mode, bool single, double a, double b, double c);
    void (*yield)(Thread*);
};

// A kernel as its library describes it.
typedef void (*KernelFunction)(Thread*, unsigned char* arguments);

}  // namespace rf
