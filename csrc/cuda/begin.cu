// The first kernel of a chunk: packs the images, and turns the plan into what the other kernels need. Its blocks have
// one of six roles, none of which needs another's result but program_role() that of admit_role().
#include "pixels.cuh"

namespace prime {
namespace {

constexpr int kBegin = 256, kWarps = kBegin / 32;

// Chebyshev polynomials of s = cos 2t as monomials: cos 2it = T_i, cos (2i+1)t = cos t V_i, sin (2i+1)t = sin t W_i,
// sin (2i+2)t = sin t cos t 2 U_i.
__constant__ float kT[6][6] = {{1, 0, 0, 0, 0, 0},  {0, 1, 0, 0, 0, 0},  {-1, 0, 2, 0, 0, 0},
                               {0, -3, 0, 4, 0, 0}, {1, 0, -8, 0, 8, 0}, {0, 5, 0, -20, 0, 16}};
__constant__ float kV[5][5] = {
    {1, 0, 0, 0, 0}, {-1, 2, 0, 0, 0}, {-1, -2, 4, 0, 0}, {1, -4, -4, 8, 0}, {1, 4, -12, -8, 16}};
__constant__ float kW[5][5] = {
    {1, 0, 0, 0, 0}, {1, 2, 0, 0, 0}, {-1, 2, 4, 0, 0}, {-1, -4, 4, 8, 0}, {1, -4, -12, 8, 16}};
__constant__ float kU[5][5] = {
    {2, 0, 0, 0, 0}, {0, 4, 0, 0, 0}, {-2, 0, 8, 0, 0}, {0, -8, 0, 16, 0}, {2, 0, -24, 0, 32}};

// Of code_bytes() each, for a field's shifts.
__device__ int planes(const ApplyArgs& a, Slot s) { return Kept(a.height, a.width, s).unit == kWide ? 2 : 1; }

// The order of fields, and where they are, is no part of the result.
__device__ int add_field(const Work& round, int unit, int j, Slot s) {
  const ApplyArgs& a = round.args;
  const Kept kept(a.height, a.width, s);
  const int ky = parity_pad(modes(s.last, a.height));
  const bool fits = int64_t(16) * round.tiles_x * 2 * ky <= round.half_words;
  char* shift = round.pool + atomicAdd(round.counts + kShifts, planes(a, s)) * round.code_bytes();
  const int at = atomicAdd(round.counts + kFields, 1);
  const Stream stream = round.plan(unit / a.chains).stream();
  const int chain = unit % a.chains, split = !kept.coarse && fits;
  round.fields[at] = {stream, reinterpret_cast<uint2*>(shift), chain, j, s.last, ky, split, kept.unit, s.strength, {}};
  return at;
}

constexpr int kInvalid = -1;

// A slot as it runs: what changes nothing is the identity.
__device__ Slot slot_of(const Work& w, int unit, int j) {
  const Row<const int32_t> plan = w.plan(unit / w.args.chains);
  const int chain = unit % w.args.chains;
  Slot s = plan.slot(chain, j);
  if (!valid(s, w.args.max_cut, w.args.max_band)) s.primitive = kInvalid;
  if (s.primitive > 0 && (s.strength == 0.f || plan.weight(chain + 1) == 0.f)) s.primitive = kIdentity;
  return s;
}

// How many slots of a chain its table stands for: color maps at its begin, of bytes. slot(j) is slot_of(w, unit, j).
template <class SlotAt>
__device__ int tabulated(const Work& w, SlotAt slot) {
  if (w.args.in_type != DType::u8) return 0;
  int slots = 0;
  for (int j = 0; j < w.args.depth; ++j) {
    const int primitive = slot(j).primitive;
    if (primitive == kColor)
      slots = j + 1;
    else if (primitive != kIdentity)
      break;
  }
  return slots;
}

// Passes of a chain whose slots are slot(j); 0 if one is invalid.
template <class SlotAt>
__device__ int passes_of(const Work& w, SlotAt slot) {
  int j = tabulated(w, slot), passes = j > 0;
  for (; j < w.args.depth; ++j) {
    const int primitive = slot(j).primitive;
    if (primitive == kInvalid) return 0;
    if (primitive == kSpectral || primitive == kSpatial || (primitive != kIdentity && passes == 0)) ++passes;
  }
  return passes;
}

// Of so many passes, the images between them that are kept at a time.
__device__ int images_between(int passes) { return min(max(passes - 1, 0), 2); }

// For two rounds: how many images the first one takes, by one block.
__device__ void admit_role(const Work& w) {
  __shared__ int shifts[kBegin], fields[kBegin], between[kBegin];  // by image; shifts: planes()
  __shared__ int64_t sums[kWarps];
  __shared__ int fit;
  const int thread = threadIdx.x, lane = thread % 32, warp = thread / 32, chains = w.args.chains;
  if (thread == 0) fit = 0;
  int64_t before = 0;
  for (int first = 0; first < w.images; first += kBegin) {
    shifts[thread] = fields[thread] = between[thread] = 0;
    __syncthreads();
    const int here = min(kBegin, w.images - first);
    for (int i = thread; i < here * w.views * chains; i += kBegin) {  // a thread a chain
      const int image = i % here, view_chain = i / here;
      const int unit = (view_chain / chains * w.images + first + image) * chains + view_chain % chains;
      const auto slot = [&](int j) { return slot_of(w, unit, j); };
      for (int j = 0; j < w.args.depth; ++j) {
        const Slot s = slot(j);
        if (s.primitive == kSpatial) atomicAdd(shifts + image, planes(w.args, s)), atomicAdd(fields + image, 1);
      }
      atomicAdd(between + image, images_between(passes_of(w, slot)));
    }
    __syncthreads();
    // Bytes of the pool that the images need, up to this one.
    int64_t sum =
        shifts[thread] * w.code_bytes() + max(fields[thread] * w.half_bytes(), between[thread] * w.image_bytes());
    for (int step = 1; step < 32; step *= 2) {
      const int64_t other = __shfl_sync(0xffffffff, sum, lane < step ? lane : lane - step);
      if (lane >= step) sum += other;
    }
    if (lane == 31) sums[warp] = sum;
    __syncthreads();
    int64_t all = before;
    for (int i = 0; i < kWarps; ++i) {
      if (i == warp) sum += all;
      all += sums[i];
    }
    if (thread < here && sum <= w.pool_bytes) atomicAdd(&fit, 1);
    before = all;
    __syncthreads();
  }
  if (thread == 0) *w.admitted = fit;
}

// Chains as passes and steps, and the list of displacement fields. First a thread a slot, then a thread a chain.
__device__ void program_role(const Work& w, int first) {
  __shared__ Slot slots[kBegin];
  __shared__ int numbers[kBegin];  // of fields
  const ApplyArgs& a = w.args;
  const int depth = a.depth, here = min(kBegin / depth, w.units() - first);
  const int split = w.in_first_round();
  const auto round_of = [&](int unit) { return w.in_round(unit / a.chains % w.images >= split); };
  if (threadIdx.x < here * depth) {
    const int unit = first + threadIdx.x / depth, j = threadIdx.x % depth;
    const Slot s = slot_of(w, unit, j);
    if (s.primitive == kSpatial) numbers[threadIdx.x] = add_field(round_of(unit), unit, j, s);
    slots[threadIdx.x] = s;
  }
  __syncthreads();
  if (threadIdx.x >= here) return;
  const int unit = first + threadIdx.x;
  const Work round = round_of(unit);
  const int64_t at = static_cast<int64_t>(unit) * depth;
  const float weight = w.plan(unit / a.chains).weight(unit % a.chains + 1);
  const auto slot = [&](int j) { return slots[threadIdx.x * depth + j]; };
  const int between = images_between(weight == 0.f ? 0 : passes_of(w, slot));
  const int image = between == 0 ? 0 : atomicAdd(round.counts + kImages, between);
  int passes = 0, steps = 0;
  Pass pass{};
  const auto next = [&](int op) {
    const uint2* source = w.packed + unit / a.chains % w.images * w.pixels;
    if (passes) {
      source = pass.target = w.image(image + (passes - 1) % 2);
      pass.last = steps, w.passes[at + passes - 1] = pass;
    }
    pass.source = source, pass.op = op, pass.first = steps;
    ++passes;
  };
  int j = tabulated(w, slot);
  if (j > 0) {
    next(kColor);
    pass.operand = w.tables + unit;
  }
  for (; j < depth && weight != 0.f; ++j) {
    const Slot s = slot(j);
    if (s.primitive == kIdentity) continue;
    if (s.primitive == kInvalid) {
      passes = -1;
      break;
    }
    if (s.primitive == kSpectral) {
      next(kSpectral);
      pass.operand = w.parameters_of(unit, j);
    } else if (s.primitive == kSpatial) {
      next(kSpatial);
      const Field& field = round.fields[numbers[threadIdx.x * depth + j]];
      pass.operand = field.shift, pass.unit = field.unit;
    } else {
      if (passes == 0) next(kIdentity);
      w.steps[at + steps++] = {w.parameters_of(unit, j), s.primitive, j, s.first, s.last - s.first + 1, s.strength, 0};
    }
  }
  for (int p = 0; p + 1 < passes; ++p) round.to_do[p * w.units() + atomicAdd(round.counts + kPasses + p, 1)] = unit;
  pass.last = steps;
  w.chains[unit] = {pass, passes, weight, {}};
}

// n normals of a run, by one warp.
template <class Put>
__device__ void warp_run(int n, Stream stream, int chain, int j, Purpose purpose, int channel, Put put) {
  for (int q = threadIdx.x % 32; q < run_blocks(n); q += 32) {
    const auto z = normals(stream.block<uint32_t>(static_cast<uint32_t>(q), chain, j, purpose, channel));
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (4 * q + i < n) put(4 * q + i, z.z[i]);
  }
  __syncwarp();
}

// One warp a slot: the taps of filters, times 256/255 and followed by their sum, because they meet 1 + (255/256) x; the
// coefficients of color bands.
__device__ void parameter_role(const Work& w, int first_warp) {
  __shared__ float band_of_warp[kWarps][kPolynomial];
  const ApplyArgs& a = w.args;
  const int64_t at = first_warp + threadIdx.x / 32;
  if (at >= static_cast<int64_t>(w.units()) * a.depth) return;
  const int unit = static_cast<int>(at / a.depth), j = static_cast<int>(at % a.depth), chain = unit % a.chains;
  const Row<const int32_t> plan = w.plan(unit / a.chains);
  const Slot s = plan.slot(chain, j);
  if (!valid(s, a.max_cut, a.max_band)) return;
  float* out = w.parameters_of(unit, j);
  const int lane = threadIdx.x % 32;
  if (s.primitive == kSpectral) {
    const int taps = a.filter * a.filter;
    warp_run(taps, plan.stream(), chain, j, Purpose::filter, 0,
             [&](int i, float z) { out[i] = (fmaf(s.strength, z, i == taps / 2 ? 1.f : 0.f)) * kUp; });
    if (lane == 0) {
      float sum = 0.f;
      for (int i = 0; i < taps; ++i) sum += out[i];
      out[taps] = sum;
    }
  } else if (s.primitive == kColor) {
    if (j < tabulated(w, [&](int j) { return slot_of(w, unit, j); })) return;  // table_role() has these
    const int count = s.last - s.first + 1, middle = count / 2;
    for (int c = 0; c < 3; ++c) {
      if (count > kPolynomial) {
        warp_run(count, plan.stream(), chain, j, Purpose::color, c,
                 [&](int i, float z) { out[c * count + i] = z * s.strength; });
        continue;
      }
      float* band = band_of_warp[threadIdx.x / 32];
      warp_run(count, plan.stream(), chain, j, Purpose::color, c, [&](int i, float z) { band[i] = z * s.strength; });
      const auto b = [&](int k) { return middle + k >= 0 && middle + k < count ? band[middle + k] : 0.f; };
      float sum = 0.f;
      if (lane < 6)
        for (int i = 0; i < 6; ++i) sum = fmaf(b(2 * i) + (i ? b(-2 * i) : 0.f), kT[i][lane], sum);
      else if (lane < 11)
        for (int i = 0; i < 5; ++i) sum = fmaf(b(2 * i + 1) + b(-2 * i - 1), kV[i][lane - 6], sum);
      else if (lane < 16)
        for (int i = 0; i < 5; ++i) sum = fmaf(b(2 * i + 1) - b(-2 * i - 1), kW[i][lane - 11], sum);
      else if (lane < 21)
        for (int i = 0; i < 5; ++i) sum = fmaf(b(2 * i + 2) - b(-2 * i - 2), kU[i][lane - 16], sum);
      else
        sum = 0.5f * static_cast<float>(s.first + middle);
      if (lane < kPolynomialWords) out[c * kPolynomialWords + lane] = sum;
      __syncwarp();
    }
  }
}

// The table of a unit's chain, by a block; coefficients go by way of the place for the slot's parameters.
__device__ void table_role(const Work& w, int unit) {
  static_assert(kBegin == 256, "a thread a byte");
  const auto slot = [&](int j) { return slot_of(w, unit, j); };
  const int slots = tabulated(w, slot), chain = unit % w.args.chains;
  if (slots == 0) return;
  const Stream stream = w.plan(unit / w.args.chains).stream();
  float x[3];
  for (int c = 0; c < 3; ++c) x[c] = byte_value(threadIdx.x);
  for (int j = 0; j < slots; ++j) {
    const Slot s = slot(j);
    if (s.primitive != kColor) continue;
    const int count = s.last - s.first + 1, channel = threadIdx.x / 32;  // a warp each
    float* coefficients = w.parameters_of(unit, j);
    if (channel < 3)
      warp_run(count, stream, chain, j, Purpose::color, channel,
               [&](int i, float z) { coefficients[channel * count + i] = z * s.strength; });
    __syncthreads();
    for (int c = 0; c < 3; ++c) x[c] = color_map(x[c], coefficients + c * count, s.first, count);
  }
  for (int c = 0; c < 3; ++c) w.tables[unit][c][threadIdx.x] = x[c];
}

// How images are read: by words of four bytes where addresses allow it, from planes or from interleaved pixels.
enum class Reading { single, planes, pixels };

Reading reading_of(const ApplyArgs& a) {
  const Strides s = a.in_strides;
  if (a.in_type != DType::u8 || a.width % 4 || s.n % 4 || s.h % 4 || reinterpret_cast<uintptr_t>(a.in) % 4)
    return Reading::single;
  if (s.w == 1 && s.c % 4 == 0) return Reading::planes;
  return s.w == 3 && s.c == 1 ? Reading::pixels : Reading::single;
}

// Blocks that pack an image: four pixels of each of two rows a thread.
__host__ __device__ __forceinline__ int pack_blocks(const Work& w) {
  return (w.pitch / 4 * ((w.args.height + 1) / 2) + kBegin - 1) / kBegin;
}

// Adds values of four pixels in each of some rows that are no pixels to Work::bad; rarely run.
__device__ void add_bad(const Work& w, int64_t from, int x, int rows) {
  const ApplyArgs& a = w.args;
  const Strides s = a.in_strides;
  BadPixels bad{};
#pragma unroll 1
  for (int i = 0; i < 12 * rows; ++i) {
    const int row = i / 12, column = x + i / 3 % 4, c = i % 3;
    if (column >= a.width) continue;
    const float v = load_unchecked(a, from + row * s.h + c * s.c + column * s.w), pixel = checked(v);
    if (pixel != pixel) bad.add(v);
  }
  atomicAdd(&w.bad->values, bad.values);
  atomicMax(&w.bad->any_nan, bad.any_nan);
  atomicMax(&w.bad->below, bad.below), atomicMax(&w.bad->above, bad.above);
}

// Values that are no pixels have become NaN in load(); here they are 0, and the output gets its NaN from the image
// itself.
__device__ void pack_role(const Work& w, int image, int block, Reading reading) {
  const ApplyArgs& a = w.args;
  const Strides s = a.in_strides;
  const int at = block * kBegin + threadIdx.x, strip = __umulhi(at, w.per_quad);  // at / quads
  const int x = 4 * (at - strip * (w.pitch / 4)), y = 2 * strip;
  if (y >= a.height) return;
  const bool two = y + 1 < a.height;
  const int64_t from = (w.first_image + image) * s.n + y * s.h;
  const auto write = [&](int row, const uint2(&pixel)[4]) {
    uint4* out = reinterpret_cast<uint4*>(w.packed + image * w.pixels + static_cast<unsigned>((y + row) * w.pitch + x));
    out[0] = {pixel[0].x, pixel[0].y, pixel[1].x, pixel[1].y};
    out[1] = {pixel[2].x, pixel[2].y, pixel[3].x, pixel[3].y};
  };
  uint2 pixel[4];
  if (reading == Reading::single) {
    bool bad = false;
#pragma unroll 1
    for (int row = 0; row <= two; ++row) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float v[3] = {};
        if (x + i < a.width)
#pragma unroll
          for (int c = 0; c < 3; ++c) {
            v[c] = load(a, from + row * s.h + c * s.c + (x + i) * s.w);
            bad |= v[c] != v[c];
            v[c] = __saturatef(v[c]);
          }
        pixel[i] = encode(v);
      }
      write(row, pixel);
    }
    if (bad) add_bad(w, from, x, 1 + two);
    return;
  }
  const bool planes = reading == Reading::planes;
  const uint8_t* bytes = static_cast<const uint8_t*>(a.in) + from + (planes ? x : 3 * x);
  const int64_t next = planes ? s.c : 4;
  uint32_t word[2][3];  // all are asked for at once
#pragma unroll
  for (int row = 0; row < 2; ++row, bytes += s.h)
#pragma unroll
    for (int i = 0; i < 3; ++i)
      word[row][i] = row == 0 || two ? __ldg(reinterpret_cast<const uint32_t*>(bytes + i * next)) : 0;
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    const auto [a, b, c] = word[row];
    uint32_t three[4];  // a pixel in the low three bytes
    if (planes) {
      const uint32_t left = __byte_perm(a, b, 0x5140), right = __byte_perm(a, b, 0x7362);
      three[0] = __byte_perm(left, c, 0x0410), three[1] = __byte_perm(left, c, 0x0532);
      three[2] = __byte_perm(right, c, 0x0610), three[3] = __byte_perm(right, c, 0x0732);
    } else {
      three[0] = a, three[1] = __byte_perm(a, b, 0x0543), three[2] = __byte_perm(b, c, 0x0432), three[3] = c >> 8;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
      pixel[i] = {kBlack + (__byte_perm(three[i], 0, 0x4140) << 7),
                  kBlackBlue + (__byte_perm(three[i], 0, 0x4442) << 7)};
    if (row == 0 || two) write(row, pixel);
  }
}

// Sines as the first factor of the tensor-core products (fields.cu), [tiles][k / 16][parity][value, rest][lane].
// Columns x of the image are in such an order that a lane gets 4 t .. 4 t + 3 of the second product: 4 t + 2 i + e is
// row 8 i + 2 t + e here.
__device__ void sine_role(const Work& w, int64_t at) {
  const ApplyArgs& a = w.args;
  for (int axis = 0; axis < 2; ++axis) {
    const int tiles = axis ? w.tiles_x : w.tiles_y, steps = (axis ? w.kx : w.ky) / kK;
    const int64_t lanes = static_cast<int64_t>(2) * tiles * steps * 32;
    if (at >= lanes) {
      at -= lanes;
      continue;
    }
    const int lane = at % 32, parity = at / 32 % 2, step = at / 64 % steps, tile = at / 64 / steps;
    const int intervals = (axis ? a.width : a.height) - 1;
    union {
      __half h[8];
      uint4 all;
    } value, rest;
    for (int i = 0; i < 8; ++i) {
      const int g = lane / 4, second = i / 2 % 2;
      const int row = tile * 16 + (axis ? g / 2 * 4 + second * 2 + g % 2 : second * 8 + g);
      const int k = step * kK + lane % 4 * 2 + i % 2 + i / 4 * 8;
      const float sine = grid_sine(2 * k + 1 + parity, row, intervals);
      value.h[i] = __float2half_rn(sine);
      rest.h[i] = __float2half_rn(sine - __half2float(value.h[i]));
    }
    uint4* out = (axis ? w.sine_x : w.sine_y) + at / 32 * 64 + lane;
    out[0] = value.all, out[32] = rest.all;
    return;
  }
}

struct Roles {
  unsigned admit, program, parameters, tables, pack, sine;  // blocks
  Reading reading;
  unsigned blocks() const { return admit + program + parameters + tables + pack + sine; }
};

__global__ void __launch_bounds__(kBegin) begin_kernel(Work w, Roles roles) {
  after_last_kernel();
  unsigned block = blockIdx.x;
  if (block < roles.admit) return admit_role(w);
  if ((block -= roles.admit) < roles.program) return program_role(w, block * (kBegin / w.args.depth));
  if ((block -= roles.program) < roles.parameters) return parameter_role(w, block * kWarps);
  if ((block -= roles.parameters) < roles.tables) return table_role(w, block);
  if ((block -= roles.tables) < roles.pack) {
    const unsigned each = pack_blocks(w), image = block / each;
    return pack_role(w, image, block - image * each, roles.reading);
  }
  sine_role(w, (block - roles.pack) * int64_t(kBegin) + threadIdx.x);
}

}  // namespace

cudaError_t begin(const Work& w, bool first, cudaStream_t stream) {
  const auto blocks = [](int64_t threads) { return static_cast<unsigned>((threads + kBegin - 1) / kBegin); };
  const int64_t sines = int64_t(2) * 32 / kK * (int64_t(w.tiles_y) * w.ky + int64_t(w.tiles_x) * w.kx);
  const unsigned chains = kBegin / w.args.depth;  // of a block
  const unsigned program = (w.units() + chains - 1) / chains;
  Roles roles{0,
              program,
              blocks(int64_t(w.units()) * w.args.depth * 32),
              w.args.in_type == DType::u8 ? static_cast<unsigned>(w.units()) : 0,
              static_cast<unsigned>(w.images * pack_blocks(w)),
              first ? blocks(sines) : 0,
              reading_of(w.args)};
  const char* zeros = reinterpret_cast<const char*>(w.counts + w.rounds * w.counters());
  const size_t bytes = zeros - reinterpret_cast<const char*>(w.bad);
  if (const cudaError_t error = cudaMemsetAsync(w.bad, 0, bytes, stream)) return error;
  if (w.rounds == 2) roles.admit = 1, roles.program = 0;
  const cudaError_t error = launch(begin_kernel, roles.blocks(), kBegin, stream, w, roles);
  if (error || w.rounds == 1) return error;
  return launch(begin_kernel, program, kBegin, stream, w, Roles{0, program});  // after admit_role()
}

}  // namespace prime
