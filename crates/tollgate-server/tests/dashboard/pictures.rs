//! Pictures of the pages at three widths, light and dark. With `TOLLGATE_PICTURES=FOLDER` they are saved there.

use std::path::PathBuf;

use crate::browser::Screen;
use crate::install::browser;
use crate::lively::lively;

const PAGES: [(&str, &str); 14] = [
    ("workspace", "/"),
    ("board", "/board?span=24h"),
    ("approvals", "/approvals"),
    ("together", "/approvals/all?action=pay"),
    ("task", "/tasks/import-csv.md"),
    ("agents", "/agents"),
    ("agent", "/agents/red"),
    ("changes", "/changes"),
    ("file", "/files?path=README.md"),
    ("lines", "/files?path=src%2Forder.rs&lines=true"),
    ("refused", "/conflicts?state=open"),
    ("conflicts", "/conflicts"),
    ("ledger", "/ledger"),
    ("new", "/new"),
];

#[test]
fn every_page_fits_at_three_widths_light_and_dark() {
    let Some(mut browser) = browser() else { return };
    let folder = std::env::var_os("TOLLGATE_PICTURES").map(PathBuf::from);
    let world = lively();
    world.hears("/ledger", "Verified.");
    for scheme in ["light", "dark"] {
        for (width, height) in [(390, 844), (1280, 800), (2560, 1440)] {
            browser.looks_like(Screen { width, height, scheme });
            for (name, page) in PAGES {
                browser.opens(&world, page);
                assert_eq!(browser.overflow(), 0, "{page} at {width}");
                if let Some(folder) = &folder {
                    let png = browser.picture();
                    std::fs::write(folder.join(format!("{name}-{width}-{scheme}.png")), png).unwrap();
                }
            }
        }
    }
    assert_eq!(browser.complaints(), Vec::<String>::new());
}
