//! Functions of libtorch that its Rust bindings lack. They are implemented in `aten/aten.cpp`.
#![expect(unsafe_code, reason = "functions of a library in another language")]

use std::ffi::{CStr, c_char, c_void};
use std::ptr;

use tch::{TchError, Tensor};

use crate::torch::Result;

/// A range of queries, and the range of keys that they attend to.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    /// The first query, and how many.
    pub(crate) q: i64,
    pub(crate) n_q: i64,
    /// The first key, and how many.
    pub(crate) k: i64,
    pub(crate) n_k: i64,
    /// 1 where each query sees the keys up to its own, 0 where it sees all.
    pub(crate) causal: i64,
}

/// Where in a batch the new positions of each sequence are, and the keys that they attend to. The tensors are i32.
#[derive(Debug)]
pub(crate) struct Sequences {
    /// The index of each sequence's first new position, and last the number of all, `[n + 1]`.
    pub(crate) queries: Tensor,
    /// The index of each sequence's first key, `[n + 1]`. The last number is not read.
    pub(crate) keys: Tensor,
    /// The number of each sequence's keys, `[n]`. The last of them are those of its new positions.
    pub(crate) n_keys: Tensor,
    /// The largest numbers of new positions and of keys that a sequence has.
    pub(crate) most_queries: i64,
    pub(crate) most_keys: i64,
}

/// A tensor as the bindings hand it to C++.
type Raw = *mut torch_sys::C_tensor;

const ERROR_LENGTH: usize = 2048;

unsafe extern "C" {
    fn metaclaw_vjp(
        error: *mut c_char,
        ys: *const Raw,
        grads: *const Raw,
        n: usize,
        leaves: *const Raw,
        n_leaves: usize,
        found: *mut Raw,
    );
    fn metaclaw_attention_in_parts(
        error: *mut c_char,
        q: Raw,
        k: Raw,
        v: Raw,
        parts: *const Part,
        n: usize,
    ) -> Raw;
    fn metaclaw_attention_of_sequences(
        error: *mut c_char,
        q: Raw,
        k: Raw,
        v: Raw,
        places: *const Raw,
        most_queries: i64,
        most_keys: i64,
        window: i64,
    ) -> Raw;
    fn metaclaw_add_product(error: *mut c_char, sum: Raw, x: Raw, w: Raw);
    fn metaclaw_plain_calls_begin() -> *mut c_void;
    fn metaclaw_plain_calls_end(guard: *mut c_void);
}

/// Switches autograd off on this thread until it is dropped: calls build no graph, and do not count versions of tensors, which takes
/// time even under `no_grad`.
pub(crate) struct PlainCalls(*mut c_void);

/// The vector-Jacobian product: gradients of the sum of `y * grad` over all pairs with respect to the leaves. The graph is freed.
///
/// # Errors
/// When no `y` depends on one of the leaves, or libtorch refuses.
pub(crate) fn vjp(pairs: &[(&Tensor, &Tensor)], leaves: &[&Tensor]) -> Result<Vec<Tensor>> {
    let ys: Vec<Raw> = pairs.iter().map(|(y, _)| raw(y)).collect();
    let grads: Vec<Raw> = pairs.iter().map(|(_, grad)| raw(grad)).collect();
    let leaves: Vec<Raw> = leaves.iter().map(|leaf| raw(leaf)).collect();
    let mut found = vec![ptr::null_mut(); leaves.len()];
    // SAFETY: the lists have the lengths that are given with them, and their tensors are borrowed until the call ends.
    checked(|error| unsafe {
        metaclaw_vjp(
            error,
            ys.as_ptr(),
            grads.as_ptr(),
            ys.len(),
            leaves.as_ptr(),
            leaves.len(),
            found.as_mut_ptr(),
        );
    })?;
    // SAFETY: without an error there is a new tensor in each place, which nobody else has.
    Ok(found
        .into_iter()
        .map(|new| unsafe { Tensor::from_ptr(new) })
        .collect())
}

/// Attention of queries to the keys of their parts, without a mask; differentiable.
///
/// # Shapes
/// `q`: `[1, heads, t, e]`, `k` and `v`: `[1, key heads, s, e]`, all in one dtype. Every query is in a part. Parts of the same queries
/// stand next to each other. Returns the shape of `q`.
///
/// # Errors
/// What libtorch refuses, above all a part that is not within the tensors.
pub(crate) fn attention_in_parts([q, k, v]: [&Tensor; 3], parts: &[Part]) -> Result<Tensor> {
    // SAFETY: the tensors and the list of this length are borrowed until the call ends.
    let found = checked(|error| unsafe {
        metaclaw_attention_in_parts(error, raw(q), raw(k), raw(v), parts.as_ptr(), parts.len())
    })?;
    // SAFETY: without an error it is a new tensor, which nobody else has.
    Ok(unsafe { Tensor::from_ptr(found) })
}

/// Attention of the new positions of several sequences in one call; inference only. A position attends to the keys of its sequence up to
/// its own, or to the `window` newest of these.
///
/// # Shapes
/// `q`: `[t, heads, e]`, `k` and `v`: `[s, key heads, e]`, all in one dtype, which has 16 bits on a GPU. Returns the shape of `q`.
///
/// # Errors
/// What libtorch refuses.
pub(crate) fn attention_of_sequences(
    [q, k, v]: [&Tensor; 3],
    of: &Sequences,
    window: Option<i64>,
) -> Result<Tensor> {
    let places = [raw(&of.queries), raw(&of.keys), raw(&of.n_keys)];
    // SAFETY: the tensors and the list of three are borrowed until the call ends.
    let found = checked(|error| unsafe {
        metaclaw_attention_of_sequences(
            error,
            raw(q),
            raw(k),
            raw(v),
            places.as_ptr(),
            of.most_queries,
            of.most_keys,
            window.unwrap_or(0),
        )
    })?;
    // SAFETY: without an error it is a new tensor, which nobody else has.
    Ok(unsafe { Tensor::from_ptr(found) })
}

/// Adds `x Wᵀ` to `sum` in place; inference only. On a GPU this is one call.
///
/// # Shapes
/// `sum`: `[n, out]`, f32. `x`: `[n, in]`, `weight`: `[out, in]`, in one dtype.
///
/// # Errors
/// What libtorch refuses.
pub(crate) fn add_product(sum: &mut Tensor, x: &Tensor, weight: &Tensor) -> Result<()> {
    // SAFETY: the tensors are borrowed until the call ends, and the one that it changes is nobody else's.
    checked(|error| unsafe { metaclaw_add_product(error, sum.as_mut_ptr(), raw(x), raw(weight)) })
}

// === impl Part ===

impl Part {
    /// The number of scores: pairs of a query and a key that it attends to.
    pub(crate) fn n_scores(&self) -> i64 {
        if self.causal == 1 {
            self.n_q * (self.n_q + 1) / 2
        } else {
            self.n_q * self.n_k
        }
    }
}

// === impl PlainCalls ===

impl PlainCalls {
    pub(crate) fn begin() -> Self {
        // SAFETY: it has no conditions.
        Self(unsafe { metaclaw_plain_calls_begin() })
    }
}

impl Drop for PlainCalls {
    fn drop(&mut self) {
        // SAFETY: `begin` returned this pointer, on this thread, because a pointer is not `Send`. It is freed once.
        unsafe { metaclaw_plain_calls_end(self.0) };
    }
}

/// The tensor for a function that only reads it.
fn raw(tensor: &Tensor) -> Raw {
    tensor.as_ptr().cast_mut()
}

fn checked<T>(call: impl FnOnce(*mut c_char) -> T) -> Result<T> {
    let mut error = [0; ERROR_LENGTH];
    let result = call(error.as_mut_ptr());
    if error[0] == 0 {
        return Ok(result);
    }
    // SAFETY: the functions write less than the whole buffer, which was zeros.
    let text = unsafe { CStr::from_ptr(error.as_ptr()) };
    Err(TchError::Torch(text.to_string_lossy().into_owned()))
}
