//! The native module of the npm package: the handles of `tollgate-binding` as classes of Node.js.
//!
//! Invariants: every call runs in a thread of libuv's pool, never on the event loop, unless its caller asks for the synchronous
//! form with a last argument `true`. What a call answers is JSON as text; a failure is an error whose message is JSON. `index.js` makes values and exceptions of both. This crate translates and
//! decides nothing.
#![allow(unsafe_code, reason = "the macros of napi write it")]
#![allow(missing_docs, reason = "index.d.ts documents the classes")]
#![allow(
    dead_code,
    unreachable_pub,
    reason = "the macros of napi hand everything to Node.js, except in a test build"
)]

mod claim;
mod job;
mod turn;
mod vault;
mod workspace;
