//! `Workspace`.

use std::ffi::OsStr;
use std::path::PathBuf;

use pyo3::prelude::*;
use tollgate_binding::{Missing, VaultHandle, WorkspaceHandle};

use crate::convert::call;
use crate::turn::PyTurn;
use crate::vault::PyVault;

/// A workspace: a folder that agents and people share.
#[pyclass(frozen, name = "Workspace", module = "tollgate")]
pub(crate) struct PyWorkspace(WorkspaceHandle);

#[pymethods]
impl PyWorkspace {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        call(py, || WorkspaceHandle::open(&path)).map(Self)
    }

    #[getter]
    fn path(&self) -> &OsStr {
        self.0.path().as_os_str()
    }

    #[pyo3(signature = (agent=None))]
    fn turn(&self, py: Python<'_>, agent: Option<&str>) -> PyResult<PyTurn> {
        call(py, || self.0.turn(agent)).map(PyTurn)
    }

    #[pyo3(signature = (*, create=false))]
    fn vault(&self, py: Python<'_>, create: bool) -> PyResult<PyVault> {
        let missing = if create { Missing::Create } else { Missing::Fails };
        call(py, || VaultHandle::open(&self.0, missing)).map(PyVault)
    }

    fn __repr__(&self) -> String {
        format!("Workspace({:?})", self.0.path())
    }
}
