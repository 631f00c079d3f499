//! Trials with real processes: many agents, outsiders unaware of tollgate, and every failure that can be simulated
//! without cutting the power.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test stops at the first surprise and prints what it saw"
)]

mod agents;
mod crash;
mod crew;
mod degraded;
mod false_alarms;
mod fault;
mod foreign;
mod model_traces;
mod outsiders;
mod planted;
mod power_cuts;
mod scene;
mod stops;
mod strace;
mod stress;
