//! The dependencies: where they come from, under which licences, and which are there twice. `deny.toml` has the rules.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

struct Package {
    name: String,
    version: String,
    licence: String,
    /// `None` for the crates of this workspace.
    source: Option<String>,
}

/// All packages that the workspace needs on this platform, with tests. Nothing is downloaded.
fn packages() -> Vec<Package> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let platform = Command::new("rustc").arg("-vV").output().unwrap().stdout;
    let platform = String::from_utf8(platform).unwrap();
    let platform = platform.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    let ran = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--locked", "--offline", "--filter-platform", platform])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let metadata: Value = serde_json::from_slice(&ran.stdout).unwrap();
    let text = |package: &Value, key: &str| package[key].as_str().map(str::to_owned);
    let packages = metadata["packages"].as_array().unwrap().iter().map(|package| Package {
        name: text(package, "name").unwrap(),
        version: text(package, "version").unwrap(),
        licence: text(package, "license").unwrap_or_default(),
        source: text(package, "source"),
    });
    let packages: Vec<Package> = packages.collect();
    assert!(packages.len() > 100);
    packages
}

fn rules() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deny.toml");
    let rules: toml::Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
    serde_json::to_value(rules).unwrap()
}

/// Whether a licence expression can be met with these licences. All parts of `AND` must be met, by one alternative each.
fn is_met(expression: &str, allowed: &[&str]) -> bool {
    let expression = expression.replace(['(', ')'], "").replace(" / ", " OR ").replace('/', " OR ");
    expression.split(" AND ").all(|part| part.split(" OR ").any(|licence| allowed.contains(&licence.trim())))
}

/// The packages with several versions, without the one version of each that is the latest.
fn older_versions(packages: &[Package]) -> BTreeSet<(String, String)> {
    let number = |version: &str| -> Vec<u64> {
        version.split(['.', '-', '+']).map(|part| part.parse().unwrap_or(0)).collect()
    };
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        versions.entry(&package.name).or_default().push(&package.version);
    }
    let mut older = BTreeSet::new();
    for (name, mut versions) in versions {
        versions.sort_by_key(|version| number(version));
        versions.pop();
        older.extend(versions.into_iter().map(|version| (name.to_owned(), version.to_owned())));
    }
    older
}

/// What is wrong with the duplicates: those without an entry, and entries without a duplicate.
fn wrong_duplicates(older: &BTreeSet<(String, String)>, skip: &[(String, String)]) -> Vec<String> {
    let fits = |(name, version): &(String, String), (skipped, start): &(String, String)| {
        name == skipped && (version == start || version.starts_with(&format!("{start}.")))
    };
    let new = older.iter().filter(|one| !skip.iter().any(|entry| fits(one, entry)));
    let stale = skip.iter().filter(|entry| !older.iter().any(|one| fits(one, entry)));
    let new = new.map(|(name, version)| format!("{name} {version} is a second version"));
    new.chain(stale.map(|(name, start)| format!("{name}@{start} in `skip` is not needed"))).collect()
}

#[test]
fn all_licences_are_allowed() {
    let rules = rules();
    let allowed: Vec<&str> =
        rules["licenses"]["allow"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    for package in packages() {
        assert!(is_met(&package.licence, &allowed), "{} has the licence `{}`", package.name, package.licence);
    }
    assert!(!is_met("GPL-3.0", &allowed) && !is_met("", &allowed) && !is_met("MIT AND GPL-3.0", &allowed));
    assert!(is_met("GPL-3.0 OR MIT", &allowed) && is_met("(MIT OR X) AND Unicode-3.0", &allowed));
}

#[test]
fn all_dependencies_come_from_the_registry_of_rust() {
    let registry = rules()["sources"]["allow-registry"][0].as_str().unwrap().to_owned();
    assert_eq!(registry, "https://github.com/rust-lang/crates.io-index");
    for package in packages() {
        match package.source {
            Some(source) => assert_eq!(source, format!("registry+{registry}"), "{}", package.name),
            None => assert!(package.name.starts_with("tollgate"), "{} is a path", package.name),
        }
    }
}

#[test]
fn every_second_version_of_a_dependency_has_a_reason() {
    let rules = rules();
    let skip: Vec<(String, String)> = rules["bans"]["skip"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            assert!(entry["reason"].as_str().is_some_and(|reason| reason.len() > 5), "{entry}");
            let (name, version) = entry["crate"].as_str().unwrap().split_once('@').unwrap();
            (name.to_owned(), version.to_owned())
        })
        .collect();
    let older = older_versions(&packages());
    assert_eq!(wrong_duplicates(&older, &skip), Vec::<String>::new());
    // An entry too few, and one too many.
    assert_eq!(wrong_duplicates(&older, &skip[1..]).len(), 1);
    let stale = [skip, vec![("serde".to_owned(), "0.1".to_owned())]].concat();
    assert_eq!(wrong_duplicates(&older, &stale), ["serde@0.1 in `skip` is not needed"]);
}
