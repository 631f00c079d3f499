//! Refusals as bytes and as errors.

use super::*;

#[test]
fn only_a_path_that_is_not_utf_8_has_its_bytes_in_the_payload() {
    let json = |bytes: &[u8]| {
        let path = std::path::PathBuf::from(std::ffi::OsStr::from_bytes(bytes));
        serde_json::to_value(Refusal::new(FilePath::trusted(path), Reason::Outside).payload()).unwrap()
    };
    assert_eq!(json("/w/café".as_bytes()).as_object().unwrap().len(), 5);
    let odd = json(b"/w/caf\xe9");
    assert_eq!(
        (&odd["file_path"], &odd["file_path_base64"]),
        (&"/w/caf\u{fffd}".into(), &"L3cvY2Fm6Q==".into())
    );
}

#[test]
fn a_refusal_can_be_used_as_an_error() {
    let refusal = |path: &str, reason| Refusal::new(FilePath::trusted(path.into()), reason);
    let refusals = vec![refusal("/w/a", Reason::Outside), refusal("/w/b", Reason::ReadOnly)];
    let refused = Refused { refusals };
    let answer = || -> Result<(), Box<dyn std::error::Error>> {
        assert_eq!(Outcome::Done(7).into_result()?, 7);
        Ok(Outcome::Refused(refused.clone()).into_result()?)
    };
    let error = answer().unwrap_err();
    assert_eq!(
        error.to_string(),
        "`/w/a`: The path leads out of the workspace.\n`/w/b`: The file is read-only."
    );
    assert_eq!(error.downcast_ref::<Refused>(), Some(&refused));
}
