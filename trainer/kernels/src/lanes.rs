//! The vector units of x86-64. An operation computes as many numbers at once as a vector has lanes.
#![expect(
    unsafe_code,
    reason = "instructions exist on some processors alone, and read from pointers"
)]
#![expect(
    clippy::inline_always,
    reason = "an instruction is one only inside a function that is compiled for the processor that has it"
)]

use std::arch::x86_64::{
    __m256, __m512, _MM_HINT_T0, _mm_add_ps, _mm_loadl_epi64, _mm_loadu_si128, _mm_prefetch,
    _mm_storeu_ps, _mm256_add_ps, _mm256_castps256_ps128, _mm256_castsi256_ps,
    _mm256_cvtepi8_epi32, _mm256_cvtepi32_ps, _mm256_cvtepu16_epi32, _mm256_extractf128_ps,
    _mm256_fmadd_ps, _mm256_hadd_ps, _mm256_loadu_ps, _mm256_loadu_si256, _mm256_set1_ps,
    _mm256_slli_epi32, _mm256_storeu_ps, _mm512_castps512_ps256, _mm512_castsi512_ps,
    _mm512_cvtepi8_epi32, _mm512_cvtepi32_ps, _mm512_cvtepu16_epi32, _mm512_extractf32x8_ps,
    _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_set1_ps, _mm512_slli_epi32, _mm512_storeu_ps,
};

/// Vectors of f32.
///
/// # Safety
/// The functions may only be called if the processor has the instructions.
pub(crate) unsafe trait Lanes {
    type V: Copy;
    const N: usize;

    unsafe fn splat(x: f32) -> Self::V;
    /// Writes [`Lanes::N`] numbers. There must be room for them.
    unsafe fn write(to: *mut f32, v: Self::V);
    /// Computes `a * b + c`, rounded once.
    unsafe fn multiply_add(a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// Adds the upper lanes to the lower ones, down to eight.
    unsafe fn fold(v: Self::V) -> __m256;
}

/// Numbers that can be read as vectors of f32.
///
/// # Safety
/// The conditions of [`Lanes`] apply.
pub(crate) unsafe trait Load<L: Lanes>: Copy {
    /// Reads [`Lanes::N`] of them, which must exist.
    unsafe fn load(from: *const Self) -> L::V;
}

/// Types in which a matrix can be stored.
pub(crate) trait Weight: Load<Avx512> + Load<Avx2> + Sync {}
impl Weight for f32 {}
impl Weight for u16 {}
impl Weight for i8 {}

/// 16 lanes: AVX-512 F and DQ.
pub(crate) struct Avx512;
/// 8 lanes: AVX2 and FMA.
pub(crate) struct Avx2;

/// Prefetches memory that will be read soon. Any address is allowed.
#[inline(always)]
pub(crate) fn prefetch<T>(from: *const T) {
    // SAFETY: the instruction is part of SSE, which every 64-bit processor has. It reads nothing that a program could
    // see.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(from.cast()) }
}

/// Returns the sums of four vectors of eight, each in the same order.
///
/// # Safety
/// The processor must have AVX.
#[inline(always)]
pub(crate) unsafe fn sums(of: [__m256; 4]) -> [f32; 4] {
    let mut sums = [0.0; 4];
    // SAFETY: the caller has AVX, and there is room for four numbers.
    unsafe {
        let pairs = _mm256_hadd_ps(_mm256_hadd_ps(of[0], of[1]), _mm256_hadd_ps(of[2], of[3]));
        let sum = _mm_add_ps(
            _mm256_castps256_ps128(pairs),
            _mm256_extractf128_ps::<1>(pairs),
        );
        _mm_storeu_ps(sums.as_mut_ptr(), sum);
    }
    sums
}

// SAFETY: the callers of each function have AVX-512 F and DQ, as the trait requires.
unsafe impl Lanes for Avx512 {
    type V = __m512;
    const N: usize = 16;

    #[inline(always)]
    unsafe fn splat(x: f32) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn write(to: *mut f32, v: __m512) {
        // SAFETY: see above; the caller has the room.
        unsafe { _mm512_storeu_ps(to, v) }
    }

    #[inline(always)]
    unsafe fn multiply_add(a: __m512, b: __m512, c: __m512) -> __m512 {
        // SAFETY: see above.
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn fold(v: __m512) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps::<1>(v)) }
    }
}

// SAFETY: the callers of each function have AVX2 and FMA, as the trait requires.
unsafe impl Lanes for Avx2 {
    type V = __m256;
    const N: usize = 8;

    #[inline(always)]
    unsafe fn splat(x: f32) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_set1_ps(x) }
    }

    #[inline(always)]
    unsafe fn write(to: *mut f32, v: __m256) {
        // SAFETY: see above; the caller has the room.
        unsafe { _mm256_storeu_ps(to, v) }
    }

    #[inline(always)]
    unsafe fn multiply_add(a: __m256, b: __m256, c: __m256) -> __m256 {
        // SAFETY: see above.
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn fold(v: __m256) -> __m256 {
        v
    }
}

/// Implements reading of each type of number for each type of vector.
macro_rules! load {
    ($($number:ty, $lanes:ty: |$from:ident| $read:expr;)*) => {$(
        // SAFETY: the caller has the instructions, and the pointer has as many numbers as there are lanes.
        unsafe impl Load<$lanes> for $number {
            #[inline(always)]
            unsafe fn load($from: *const Self) -> <$lanes as Lanes>::V {
                // SAFETY: see above.
                unsafe { $read }
            }
        }
    )*};
}

load! {
    f32, Avx512: |from| _mm512_loadu_ps(from);
    f32, Avx2: |from| _mm256_loadu_ps(from);
    u16, Avx512: |from| _mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_loadu_si256(from.cast()))));
    u16, Avx2: |from| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(_mm_loadu_si128(from.cast()))));
    i8, Avx512: |from| _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(from.cast())));
    i8, Avx2: |from| _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(from.cast())));
}
