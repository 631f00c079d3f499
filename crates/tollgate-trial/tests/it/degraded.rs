//! If the file system or the kernel lacks an ability, a write still works, and its ledger line says what was missing.

use std::sync::PoisonError;

use tollgate_base::sys;

use crate::scene::{Fate, Scene, mutations, open};
use crate::strace::{Call, End, IN_PROCESS, calls, run};

/// Commits while these calls fail. Returns the guarantee in the ledger.
fn guarantee(scene: &Scene, injections: &[String]) -> Vec<String> {
    let root = scene.fresh();
    let end = run(injections, &scene.commit(&root));
    assert!(matches!(end, End::Done), "{end:?}");
    let no_children = IN_PROCESS.read().unwrap_or_else(PoisonError::into_inner);
    let lines = mutations(&open(&root));
    drop(no_children);
    assert_eq!(scene.judge(&root, "degraded"), Fate::After);
    lines.iter().map(|line| line["payload"]["guarantee"].as_str().unwrap().to_owned()).collect()
}

/// The layer without leases can do no more than find out who has a file open. A new file has no old bytes that somebody could write.
#[test]
fn with_all_abilities_the_guarantee_is_full() {
    assert_eq!(guarantee(&Scene::create(), &[]), ["full"]);
    for scene in [Scene::update(), Scene::delete(), Scene::rename()] {
        assert_eq!(guarantee(&scene, &[]), [if sys::HAS_LEASES { "full" } else { "no_quiet" }]);
    }
}

#[test]
fn without_exchange_the_ledger_says_so() {
    for error in ["EINVAL", "ENOSYS", "EOPNOTSUPP"] {
        let injection = format!("inject=renameat2:error={error}");
        assert_eq!(guarantee(&Scene::update(), &[injection]), ["no_exchange"]);
    }
}

/// The kernel grants no lease, as on a file of another user.
#[test]
fn without_a_lease_the_ledger_says_so() {
    let scene = Scene::update();
    let root = scene.fresh();
    let (_, calls) = calls(&root, &[], &scene.commit(&root));
    // The last lease is that of the commit. The earlier ones belong to reads.
    let asks = |call: &&Call| call.name == "fcntl" && call.line.contains("F_SETSIG");
    let lease = calls.iter().rfind(asks).unwrap();
    for error in ["EACCES", "EINVAL", "ENOLCK"] {
        assert_eq!(guarantee(&scene, &[lease.inject(&format!("error={error}"))]), ["no_quiet"]);
    }
}
