// What threads do together: warp collectives and barriers, and the order that these create.
#pragma once
#include "memory.h"

namespace rf {

static void join(Clock& into, const Clock& other) {
    for (int i = 0; i < WARPS; i++) into[i] = std::max(into[i], other[i]);
}

static void join(Order& into, const Order& other) {
    join(into.seen, other.seen);
    join(into.fenced, other.fenced);
    into.pending.join(other.pending);
    into.acquired.join(other.acquired);
}

// All lanes of the warp are ordered from here on.
static void advance(int warp) {
    Warp& w = warps[warp];
    w.synced = ++w.order.seen[warp];
}

// ---- warps ----

static Rendezvous* meeting_of(Fiber* self, Warp& warp, uint32_t mask, Collective work, const char* name,
                              uint32_t site) {
    Rendezvous* empty = nullptr;
    for (Rendezvous& m : warp.meetings) {
        if (!m.arrived) {
            if (!empty) empty = &m;
        } else if (m.mask == mask) {
            if (m.site != site || m.work != work)
                fail(self, site, "divergent-collective",
                    "%s with mask %08x, while lanes %08x of its mask wait in %s at {site %u}",
                     name, mask, m.arrived, m.name, m.site);
            return &m;
        } else if (m.mask & mask) {
            fail(self, site, "divergent-collective",
                "%s with mask %08x, while lanes %08x wait in %s with mask %08x at {site %u}",
                 name, mask, m.arrived, m.name, m.mask, m.site);
        }
    }
    if (!empty) fail(self, site, "divergent-collective", "%s: too many collectives of the warp wait", name);
    *empty = Rendezvous{mask, 0, site, work, name, {}};
    return empty;
}

// Wait for all lanes of the mask; the last one executes `work` for all of them.
static void collective(Fiber* self, Collective work, const char* name, uint32_t mask, void* argument, uint32_t site) {
    Warp& warp = warps[self->warp];
    const uint32_t bit = 1u << self->lane;
    if (!(mask & bit))
        fail(self, site, "divergent-collective", "%s by lane %u, which is not in its mask %08x", name, self->lane,
            mask);
    if (mask & ~warp.present)
        fail(self, site, "divergent-collective",
            "%s with mask %08x names lanes that the block does not have (%08x exist)",
             name, mask, warp.present);
    if (mask & warp.exited)
        fail(self, site, "divergent-collective", "%s with mask %08x names lanes %08x, which have ended", name, mask,
             mask & warp.exited);
    Rendezvous* meeting = meeting_of(self, warp, mask, work, name, site);
    meeting->arguments[self->lane] = argument;
    meeting->arrived |= bit;
    if (meeting->arrived != mask) return wait_here(self, name, site);
    void* arguments[LANES];
    memcpy(arguments, meeting->arguments, sizeof arguments);
    meeting->arrived = 0;
    work(arguments, mask);
    for (uint32_t i = 0; i < LANES; i++)
        if (mask >> i & 1 && i != self->lane) make_ready(&fibers[self->warp * LANES + i]);
}

static void order_lanes(void**, uint32_t) { advance(static_cast<int>(machine.running->warp)); }

static void warp_barrier(Thread* thread, uint32_t mask, uint32_t site) {
    collective(static_cast<Fiber*>(thread), order_lanes, "__syncwarp", mask, nullptr, site);
}

// ---- barriers of the block ----

static void release_barrier(Barrier& barrier) {
    const uint32_t need = barrier.need > 0 ? static_cast<uint32_t>(barrier.need) : alive;
    if (!barrier.any || static_cast<uint32_t>(barrier.arrived) < need) return;
    bool joined[WARPS] = {};
    for (const Fiber* fiber : barrier.waiting) joined[fiber->warp] = true;
    for (int w : barrier.arrivals)
        if (!joined[w]) warps[w].order.seen[w]++;  // what follows an arrival is not ordered by it
    for (int w = 0; w < WARPS; w++)
        if (joined[w]) {
            join(warps[w].order, barrier.joined);
            advance(w);
        }
    for (Fiber* fiber : barrier.waiting) {
        fiber->result = static_cast<uint32_t>(barrier.value);
        if (fiber->state == WAITING) make_ready(fiber);
    }
    barrier.waiting.clear();
    barrier.arrivals.clear();
    barrier.joined = Order{};
    barrier.arrived = 0;
    barrier.any = false;
}

static void combine(Barrier& barrier, int kind, bool value) {
    if (kind == ANY) barrier.value |= value;
    else if (kind == ALL) barrier.value &= value;
    else if (kind == COUNT) barrier.value += value;
}

static uint32_t barrier(Thread* thread, int id, int count, int kind, bool value, bool waits, uint32_t site) {
    Fiber* self = static_cast<Fiber*>(thread);
    if (id < 0 || id >= BARRIERS) fail(self, site, "divergent-barrier", "barrier %d: a block has barriers 0 to 15", id);
    if (count % LANES)
        fail(self, site, "divergent-barrier", "barrier of %d threads: the count must be a multiple of 32", count);
    Barrier& b = barriers[id];
    if (!b.any) {
        b.any = true;
        b.site = site;
        b.kind = kind;
        b.need = count;
        b.value = kind == ALL;
    } else if (b.need != count || b.kind != kind || (count <= 0 && b.site != site)) {
        fail(self, site, "divergent-barrier", "barrier %d of %d threads, while %d threads wait at the one of {site %u}",
             id, count > 0 ? count : static_cast<int>(alive), b.arrived, b.site);
    }
    combine(b, kind, value);
    join(b.joined, warps[self->warp].order);
    b.arrived++;
    if (!waits) {
        b.arrivals.push_back(static_cast<int>(self->warp));
        release_barrier(b);
        return 0;
    }
    b.waiting.push_back(self);
    self->state = READY;
    release_barrier(b);
    if (b.any && !b.waiting.empty() && b.waiting.back() == self) wait_here(self, "barrier", site);
    return self->result;
}

// ---- the end of a thread ----

static void run_thread() {
    launch.kernel(machine.running, launch.arguments);
    Fiber* self = current();
    if (!self->copies.empty())
        fail(self, self->copies[0].site, "in-flight", "the thread ends while its cp.async has not been waited for");
    self->state = DONE;
    alive--;
    warps[self->warp].exited |= 1u << self->lane;
    for (Barrier& b : barriers)
        if (b.any && b.need <= 0) release_barrier(b);
    switch_to(self, next_ready());
    abort();
}

}  // namespace rf
