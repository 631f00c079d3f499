//! `Turn`, and what it reads.

use std::path::PathBuf;

use pyo3::exceptions::PyUnicodeDecodeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use serde_json::Value;
use tollgate_binding::TurnHandle;

use crate::convert::{call, call_json, content, from_python};

/// The work of one agent from a request to its answer.
#[pyclass(frozen, name = "Turn", module = "tollgate")]
pub(crate) struct PyTurn(pub(crate) TurnHandle);

/// A file as it was read.
#[pyclass(frozen, name = "Read", module = "tollgate")]
pub(crate) struct PyRead {
    #[pyo3(get)]
    path: String,
    #[pyo3(get)]
    sha256: String,
    #[pyo3(get)]
    size: u64,
    #[pyo3(get)]
    bytes: Py<PyBytes>,
}

#[pymethods]
impl PyRead {
    /// The bytes as text. They must be UTF-8.
    #[getter]
    fn text<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        let bytes = self.bytes.as_bytes(py);
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(PyString::new(py, text)),
            Err(error) => {
                Err(PyErr::from_value(PyUnicodeDecodeError::new_utf8(py, bytes, error)?.into_any()))
            }
        }
    }

    fn __repr__(&self) -> String {
        format!("Read(path={:?}, size={}, sha256={:?})", self.path, self.size, self.sha256)
    }
}

#[pymethods]
impl PyTurn {
    #[getter]
    fn id(&self) -> &str {
        self.0.id()
    }

    #[getter]
    fn agent(&self) -> &str {
        self.0.agent()
    }

    #[pyo3(signature = (path, *, lines=None))]
    fn read(&self, py: Python<'_>, path: PathBuf, lines: Option<(usize, Option<usize>)>) -> PyResult<PyRead> {
        let read = call(py, || self.0.read(&path, lines))?;
        let bytes = PyBytes::new(py, &read.bytes).unbind();
        Ok(PyRead { path: read.path, sha256: read.sha256, size: read.size, bytes })
    }

    #[pyo3(name = "write", signature = (path, content, *, expected_hash=None))]
    fn write<'py>(
        &self,
        py: Python<'py>,
        path: PathBuf,
        #[pyo3(from_py_with = content)] content: Vec<u8>,
        expected_hash: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        call_json(py, || self.0.write(&path, content, expected_hash))
    }

    fn create<'py>(
        &self,
        py: Python<'py>,
        path: PathBuf,
        #[pyo3(from_py_with = content)] content: Vec<u8>,
    ) -> PyResult<Bound<'py, PyAny>> {
        call_json(py, || self.0.create(&path, content))
    }

    #[pyo3(signature = (path, old, new, *, all=false, expected_hash=None))]
    fn edit<'py>(
        &self,
        py: Python<'py>,
        path: PathBuf,
        old: String,
        new: String,
        all: bool,
        expected_hash: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        call_json(py, || self.0.edit(&path, old, new, all, expected_hash))
    }

    #[pyo3(signature = (path, *, expected_hash=None))]
    fn delete<'py>(
        &self,
        py: Python<'py>,
        path: PathBuf,
        expected_hash: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        call_json(py, || self.0.delete(&path, expected_hash))
    }

    #[pyo3(signature = (path, to, *, expected_hash=None))]
    fn move_file<'py>(
        &self,
        py: Python<'py>,
        path: PathBuf,
        to: PathBuf,
        expected_hash: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        call_json(py, || self.0.move_file(&path, &to, expected_hash))
    }

    fn apply<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = from_python)] changes: Value,
    ) -> PyResult<Bound<'py, PyAny>> {
        call_json(py, || self.0.apply(changes))
    }

    fn initial_hash(&self, py: Python<'_>, path: PathBuf) -> PyResult<Option<String>> {
        call(py, || self.0.initial_hash(&path))
    }

    fn merge<'py>(&self, py: Python<'py>, path: PathBuf) -> PyResult<Bound<'py, PyAny>> {
        call_json(py, || self.0.merge(&path))
    }

    fn end(&self, py: Python<'_>) -> PyResult<()> {
        call(py, || self.0.end())
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        self.end(py).map(|()| false)
    }

    fn __repr__(&self) -> String {
        format!("Turn(id={:?}, agent={:?})", self.0.id(), self.0.agent())
    }
}
