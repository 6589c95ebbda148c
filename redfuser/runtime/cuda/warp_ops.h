// Collectives of a warp: shuffles, votes, reductions, and the matrix instructions with their register layouts.
#pragma once
#include "together.h"

namespace rf {

struct Lane {  // what a lane brings to a collective, and what it takes from it
    Fiber* fiber;
    uint64_t value;
    uint32_t source, result;
    bool flag;
    uint32_t site;
};

template <class Body>
static void for_lanes(void** arguments, uint32_t mask, Body body) {
    for (uint32_t i = 0; i < LANES; i++)
        if (mask >> i & 1) body(i, *static_cast<Lane*>(arguments[i]));
}

// ---- shuffles ----

static void exchange(void** arguments, uint32_t mask) {
    for_lanes(arguments, mask, [&](uint32_t i, Lane& lane) {
        if (!(mask >> lane.source & 1))
            fail(lane.fiber, lane.site, "bad-lane",
                "lane %u reads lane %u, which is not in the mask %08x of the shuffle",
                 i, lane.source, mask);
        lane.result = static_cast<uint32_t>(static_cast<Lane*>(arguments[lane.source])->value);
    });
}

// b, c are the operands of shfl.sync: c has the clamp in bits 0-4 and the mask of sub-warps in bits 8-12.
static uint32_t shuffle(Thread* thread, int mode, uint32_t mask, uint32_t value, uint32_t b, uint32_t c, bool* valid,
                        uint32_t site) {
    static const char* const names[] = {"shfl.up", "shfl.down", "shfl.bfly", "shfl.idx"};
    const int lane = static_cast<int>(thread->lane), offset = static_cast<int>(b & 31);
    const int clamp = static_cast<int>(c & 31), segment = static_cast<int>(c >> 8 & 31);
    const int most = (lane & segment) | (clamp & ~segment), least = lane & segment;
    int source = lane;
    switch (mode) {
        case SHUFFLE_UP: source = lane - offset; *valid = source >= most; break;
        case SHUFFLE_DOWN: source = lane + offset; *valid = source <= most; break;
        case SHUFFLE_XOR: source = lane ^ offset; *valid = source <= most; break;
        default: source = least | (offset & ~segment); *valid = source <= most;
    }
    Lane mine = {static_cast<Fiber*>(thread), value, static_cast<uint32_t>(*valid ? source : lane), 0, false, site};
    collective(mine.fiber, exchange, names[mode], mask, &mine, site);
    return mine.result;
}

// ---- votes ----

static void count_votes(void** arguments, uint32_t mask) {
    uint32_t ballot = 0;
    for_lanes(arguments, mask, [&](uint32_t i, Lane& lane) { ballot |= static_cast<uint32_t>(lane.flag) << i; });
    for_lanes(arguments, mask, [&](uint32_t, Lane& lane) { lane.result = ballot; });
}

static uint32_t vote(Thread* thread, uint32_t mask, bool value, uint32_t site) {
    Lane mine = {static_cast<Fiber*>(thread), 0, 0, 0, value, site};
    collective(mine.fiber, count_votes, "vote", mask, &mine, site);
    return mine.result;
}

static void find_equal(void** arguments, uint32_t mask) {
    for_lanes(arguments, mask, [&](uint32_t, Lane& lane) {
        lane.result = 0;
        for_lanes(arguments, mask, [&](uint32_t j, Lane& other) {
            lane.result |= static_cast<uint32_t>(other.value == lane.value) << j;
        });
    });
}

static uint32_t match(Thread* thread, uint32_t mask, uint64_t value, bool all, bool* equal, uint32_t site) {
    Lane mine = {static_cast<Fiber*>(thread), value, 0, 0, false, site};
    collective(mine.fiber, find_equal, "match", mask, &mine, site);
    if (!all) return mine.result;
    *equal = mine.result == mask;
    return *equal ? mask : 0;
}

static uint32_t merge(int operation, uint32_t a, uint32_t b) {
    const int32_t x = static_cast<int32_t>(a), y = static_cast<int32_t>(b);
    switch (operation) {
        case SUM: return a + b;
        case MIN_U: return std::min(a, b);
        case MAX_U: return std::max(a, b);
        case MIN_S: return static_cast<uint32_t>(std::min(x, y));
        case MAX_S: return static_cast<uint32_t>(std::max(x, y));
        case AND: return a & b;
        case OR: return a | b;
        default: return a ^ b;
    }
}

template <int operation>
static void merge_all(void** arguments, uint32_t mask) {
    uint32_t total = 0;
    bool any = false;
    for_lanes(arguments, mask, [&](uint32_t, Lane& lane) {
        const uint32_t value = static_cast<uint32_t>(lane.value);
        total = any ? merge(operation, total, value) : value;
        any = true;
    });
    for_lanes(arguments, mask, [&](uint32_t, Lane& lane) { lane.result = total; });
}

static uint32_t reduce(Thread* thread, int operation, uint32_t mask, uint32_t value, uint32_t site) {
    static const Collective work[] = {merge_all<SUM>, merge_all<MIN_U>, merge_all<MAX_U>, merge_all<MIN_S>,
                                      merge_all<MAX_S>, merge_all<AND>, merge_all<OR>, merge_all<XOR>};
    Lane mine = {static_cast<Fiber*>(thread), value, 0, 0, false, site};
    collective(mine.fiber, work[operation], "redux", mask, &mine, site);
    return mine.result;
}

// The device may give any set of lanes that run together: the lane alone is the least that a kernel may count on.
static uint32_t active(Thread* thread) { return 1u << thread->lane; }

// ---- ldmatrix, stmatrix: lane 8 j + r gives the address of row r of matrix j ----

struct MatrixLane {
    Fiber* fiber;
    unsigned char* place;
    uint32_t address;
    int count;
    bool transposed;
    uint32_t* registers;
    uint32_t site;
};

static void count_conflicts(void** arguments, int matrix) {
    int used[8] = {}, most = 0;  // 16-byte columns of the 32 banks
    for (int row = 0; row < 8; row++)
        most = std::max(most, ++used[static_cast<MatrixLane*>(arguments[matrix * 8 + row])->address >> 4 & 7]);
    report->matrix_loads++;
    report->matrix_conflicts += static_cast<uint64_t>(most - 1);
}

// Element (row, column) of an 8 x 8 matrix that lane i keeps in half `h` of its register.
static void matrix_place(int i, int h, bool transposed, int* row, int* column) {
    *row = i / 4;
    *column = i % 4 * 2 + h;
    if (transposed) std::swap(*row, *column);
}

static void load_rows(void** arguments, uint32_t) {
    const MatrixLane& first = *static_cast<MatrixLane*>(arguments[0]);
    for (int j = 0; j < first.count; j++) {
        uint16_t rows[8][8];
        for (int r = 0; r < 8; r++) {
            MatrixLane& lane = *static_cast<MatrixLane*>(arguments[j * 8 + r]);
            memcpy(rows[r], shared(lane.fiber, lane.address, 16, READ, lane.site), 16);
        }
        count_conflicts(arguments, j);
        for (int i = 0; i < LANES; i++) {
            uint32_t value = 0;
            for (int h = 0; h < 2; h++) {
                int row, column;
                matrix_place(i, h, first.transposed, &row, &column);
                value |= static_cast<uint32_t>(rows[row][column]) << 16 * h;
            }
            static_cast<MatrixLane*>(arguments[i])->registers[j] = value;
        }
    }
}

static void load_matrix(Thread* thread, uint32_t address, int count, bool transposed, uint32_t* out, uint32_t site) {
    MatrixLane mine = {static_cast<Fiber*>(thread), nullptr, address, count, transposed, out, site};
    collective(mine.fiber, load_rows, "ldmatrix", FULL, &mine, site);
}

static void store_rows(void** arguments, uint32_t) {
    const MatrixLane& first = *static_cast<MatrixLane*>(arguments[0]);
    for (int j = 0; j < first.count; j++) {
        uint16_t rows[8][8];
        for (int i = 0; i < LANES; i++)
            for (int h = 0; h < 2; h++) {
                int row, column;
                matrix_place(i, h, first.transposed, &row, &column);
                const uint32_t value = static_cast<MatrixLane*>(arguments[i])->registers[j];
                rows[row][column] = static_cast<uint16_t>(value >> 16 * h);
            }
        for (int r = 0; r < 8; r++) {
            MatrixLane& lane = *static_cast<MatrixLane*>(arguments[j * 8 + r]);
            memcpy(shared(lane.fiber, lane.address, 16, WRITE, lane.site), rows[r], 16);
        }
    }
}

static void store_matrix(Thread* thread, uint32_t address, int count, bool transposed, const uint32_t* in,
    uint32_t site) {
    MatrixLane mine = {static_cast<Fiber*>(thread), nullptr, address, count, transposed, const_cast<uint32_t*>(in),
        site};
    collective(mine.fiber, store_rows, "stmatrix", FULL, &mine, site);
}

}  // namespace rf
