// mma.sync: the product of a 16 x k and a k x 8 matrix, from and to the registers of 32 lanes.
#pragma once
#include "warp_ops.h"

namespace rf {

static int element_bits(Operand type) { return type == OP_TF32 ? 32 : type == OP_F16 || type == OP_BF16 ? 16 : 8; }

static double element_value(uint32_t code, Operand type) {
    switch (type) {
        case OP_F16: return f16_to_float(static_cast<uint16_t>(code));
        case OP_BF16: return bf16_to_float(static_cast<uint16_t>(code));
        case OP_TF32: return bits<float>(code & 0xffffe000u);  // the unit reads 10 bits of mantissa
        case OP_E4M3: return decode(code, E4M3);
        case OP_E5M2: return decode(code, E5M2);
        case OP_S8: return static_cast<int8_t>(code);
        default: return code;
    }
}

struct ProductLane {
    Fiber* fiber;
    const Product* product;
    uint32_t site;
};

static uint32_t element(const uint32_t* registers, int index, int width) {
    const int per_register = 32 / width;
    const uint32_t word = registers[index / per_register] >> width * (index % per_register);
    return width == 32 ? word : word & ((1u << width) - 1);
}

// Layout of the PTX manual. Lane i is in group g = i / 4 and has place t = i % 4 there. Its registers of A hold, in
// order, rows g and g + 8 of columns from t * e, then both rows of the next half of the columns, e elements each;
// those of B hold column g of the same rows of B; those of C and D hold rows g and g + 8, columns 2 t and 2 t + 1.
static void read_operands(void** arguments, const Product& shape, double left[16][32], double right[32][8]) {
    const int wide = element_bits(shape.left), narrow = element_bits(shape.right), e = 32 / wide;
    const int halves = shape.k / (4 * e);
    for (int i = 0; i < LANES; i++) {
        const Product& p = *static_cast<ProductLane*>(arguments[i])->product;
        const int g = i / 4, t = i % 4;
        for (int half = 0; half < halves; half++)
            for (int j = 0; j < e; j++) {
                const int k = half * 4 * e + t * e + j;
                for (int low = 0; low < 2; low++)
                    left[g + 8 * low][k] = element_value(element(p.a, (2 * half + low) * e + j, wide), shape.left);
                right[k][g] = element_value(element(p.b, half * e + j, narrow), shape.right);
            }
    }
}

static float sum_float(const double left[16][32], const double right[32][8], int row, int column, int depth, float c) {
    double total = c;  // products are exact here; the sum is rounded once, to float
    for (int k = 0; k < depth; k++) total += left[row][k] * right[k][column];
    return static_cast<float>(total);
}

static uint32_t sum_integer(const double left[16][32], const double right[32][8], int row, int column,
                            const Product& p, uint32_t c) {
    int64_t total = static_cast<int32_t>(c);
    for (int k = 0; k < p.k; k++) total += static_cast<int64_t>(left[row][k] * right[k][column]);
    if (p.saturate) total = std::max<int64_t>(INT32_MIN, std::min<int64_t>(INT32_MAX, total));
    return static_cast<uint32_t>(total);
}

static void multiply(void** arguments, uint32_t) {
    static double left[16][32], right[32][8];
    const Product& shape = *static_cast<ProductLane*>(arguments[0])->product;
    read_operands(arguments, shape, left, right);
    for (int i = 0; i < LANES; i++) {
        const Product& p = *static_cast<ProductLane*>(arguments[i])->product;
        if (p.half) p.d[0] = p.c[0], p.d[1] = p.c[1];
        for (int n = 0; n < 4; n++) {
            const int row = i / 4 + 8 * (n / 2), column = i % 4 * 2 + n % 2;
            if (p.integer) {
                p.d[n] = sum_integer(left, right, row, column, p, p.c[n]);
            } else if (p.half) {
                const uint16_t c = static_cast<uint16_t>(p.c[n / 2] >> 16 * (n % 2));
                const uint32_t d = float_to_f16(sum_float(left, right, row, column, p.k, f16_to_float(c)));
                p.d[n / 2] = (p.d[n / 2] & (n % 2 ? 0xffffu : 0xffff0000u)) | d << 16 * (n % 2);
            } else {
                p.d[n] = bits<uint32_t>(sum_float(left, right, row, column, p.k, bits<float>(p.c[n])));
            }
        }
    }
}

static void product(Thread* thread, const Product* p, uint32_t site) {
    ProductLane mine = {static_cast<Fiber*>(thread), p, site};
    collective(mine.fiber, multiply, "mma", FULL, &mine, site);
}

}  // namespace rf
