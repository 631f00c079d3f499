//! `tollgate init --host`, `--remove`.
