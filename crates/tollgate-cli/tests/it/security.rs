//! The page about security names a test for each attack, and each of these tests exists.

use std::fs;
use std::path::Path;

/// All Rust files of the repository, joined.
fn sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let path = entry.path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn every_attack_names_a_test_that_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut code = String::new();
    sources(&root.join("crates"), &mut code);
    let page = fs::read_to_string(root.join("docs/reference/security.md")).unwrap();
    let (_, attacks) = page.split_once("## Attacks").unwrap();
    let rows: Vec<&str> = attacks
        .lines()
        .skip_while(|line| !line.starts_with("|---"))
        .skip(1)
        .take_while(|line| line.starts_with('|'))
        .collect();
    assert!(rows.len() >= 17, "{}", rows.len());
    for row in rows {
        let tests: Vec<&str> = row.split('`').filter(|part| part.contains("::")).collect();
        assert!(!tests.is_empty(), "no test prevents this: {row}");
        for test in tests {
            let name = test.rsplit("::").next().unwrap();
            assert!(code.contains(&format!("fn {name}(")), "{test} does not exist");
        }
    }
}
