//! The periods at which records are scanned.

use std::time::Duration;

use super::TestIoc;

#[test]
fn records_are_scanned_at_the_site_scan_rates() {
    let mut ioc = TestIoc::new(
        r#"menu(menuScan) {
            choice(menuScanPassive, "Passive") choice(menuScanEvent, "Event") choice(menuScanI_O_Intr, "I/O Intr")
            choice(menuScan60_second, "60 second") choice(menuScan6_second, "6 second")
           }
           record(calc, slow) { field(SCAN, "60 second") field(CALC, "VAL+1") }
           record(calc, later) { field(CALC, "VAL+1") }"#,
    );
    let start = ioc.now.monotonic;

    assert!(ioc.step());
    assert_eq!(ioc.now.monotonic, start + Duration::from_secs(60));
    assert_eq!((ioc.number("slow"), ioc.number("later")), (1.0, 0.0));

    ioc.put("later.SCAN", "6 second", None).unwrap();
    assert!(ioc.step());
    assert_eq!(ioc.now.monotonic, start + Duration::from_secs(66));
    assert_eq!((ioc.number("slow"), ioc.number("later")), (1.0, 1.0));
    assert!(ioc.put("later.SCAN", "1 second", None).is_err());
    let scanned: Vec<u64> = ioc.database.scan_counts().iter().map(|scan| scan.scanned).collect();
    assert_eq!(scanned, [1, 1]);
}
