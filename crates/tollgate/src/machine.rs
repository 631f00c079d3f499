//! The name of this machine, for stores that several machines share: random, made once, kept beside the vault.

use std::io;
use std::path::Path;

use tollgate_base::error::{At, Result};
use tollgate_base::name::random_id;
use tollgate_base::private;

/// The name in this file of a private folder; makes it if it is missing. All processes of a machine get the same one.
pub(crate) fn machine_name(folder: &Path) -> Result<String> {
    let path = folder.join("machine");
    match private::read_to_string(&path) {
        Ok(name) if !name.trim().is_empty() => return Ok(name.trim().to_owned()),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error).at("read", &path),
        _ => {}
    }
    private::create_folders(folder, 0o777).at("make the folder", folder)?;
    let name = random_id()?;
    let draft = folder.join(format!("machine.{name}"));
    private::write(&draft, format!("{name}\n")).at("write", &draft)?;
    // A link never replaces a file: of two processes that come here at the same time, one names the machine.
    let linked = private::link(&draft, &path);
    private::remove_file(&draft).at("remove", &draft)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error).at("write", &path),
        _ => Ok(private::read_to_string(&path).at("read", &path)?.trim().to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn all_processes_of_a_machine_have_one_name() {
        let keep = tempfile::tempdir().unwrap();
        let folder = keep.path().join("a/b");
        let names: Vec<String> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| machine_name(&folder).unwrap())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(names.iter().all(|name| *name == names[0] && name.len() == 16), "{names:?}");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "no draft is left");
    }
}
