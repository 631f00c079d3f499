//! Trials with real processes: many agents, outsiders that know nothing of tollgate, and every disaster that can be
//! staged without pulling the plug.

mod crash;
mod degraded;
mod fault;
mod foreign;
mod scene;
mod strace;
