//! The folder store under the conformance suite.

use super::*;
use crate::vault::conformance::{self, Bench};
use crate::vault::event::MemoryJournal;

pub(super) fn options(journal: &Arc<MemoryJournal>) -> FolderOptions {
    FolderOptions {
        durability: Durability::Fast,
        settle: Duration::from_secs(2),
        journal: Arc::clone(journal) as Arc<dyn Journal>,
        quiet: None,
    }
}

fn bench() -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let journal = Arc::new(MemoryJournal::default());
    let store = FolderStore::open(folder.path(), options(&journal)).unwrap();
    let person = store.clone();
    Bench {
        store: Arc::new(store),
        events: Box::new(move || journal.events()),
        kill: Box::new(drop),
        meddle: Box::new(move |task, from, to, bytes| {
            let _keep = &folder;
            let (from, to) = (person.path(task, from), person.path(task, to));
            if from != to {
                fs::rename(&from, &to).unwrap();
            }
            if let Some(bytes) = bytes {
                fs::write(&to, bytes).unwrap();
            }
        }),
    }
}

#[test]
fn folders_conform() {
    conformance::run(&bench);
}
