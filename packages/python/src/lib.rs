//! The native module of the Python package: the handles of `tollgate-binding` as Python classes.
//!
//! Invariants: every call that may wait releases the interpreter's lock. A failure becomes an exception of the package's
//! `_errors`, which is written in Python. This crate translates and decides nothing.
#![allow(unsafe_code, reason = "the macros of pyo3 write it")]
#![allow(missing_docs, reason = "the stubs document the classes")]

mod claim;
mod convert;
mod turn;
mod vault;
mod workspace;

use pyo3::prelude::*;

/// What `import tollgate._native` gives.
#[pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use super::claim::PyClaim;
    #[pymodule_export]
    use super::turn::{PyRead, PyTurn};
    #[pymodule_export]
    use super::vault::PyVault;
    #[pymodule_export]
    use super::workspace::PyWorkspace;
}
