//! Asking whether a change of the code applies (P40). Not here: how the answer is found (engine) and recorded (worker).

use everstep::host::Spec;
use everstep::{Error, Workflow};

use crate::driver::{Driver, done, numbers};

#[test]
fn p40_a_change_is_asked_about_once_and_numbered_each_time() {
    let mut driver = Driver::new(|cx: Workflow| async move {
        let first = cx.patched("change").await?;
        let second = cx.patched("change").await?;
        cx.deprecate_patch("change").await?;
        let other = cx.patched("other").await?;
        cx.sleep("nap", "1 s").await?;
        Ok::<_, Error>((first, second, other))
    });
    let polled = driver.poll();
    assert!(matches!(polled.made[0].spec, Spec::Patch));
    assert_eq!(polled.made[0].call.to_string(), "patch \"change\" #1");
    let polled = driver.feed(0, false);
    assert_eq!(
        (numbers(&polled.made), polled.made[0].call.to_string()),
        (vec![3], "patch \"other\" #1".into())
    );
    assert_eq!(numbers(&driver.feed(3, true).made), [4]);
    assert_eq!(done::<(bool, bool, bool)>(driver.feed(4, ())), (false, false, true));
}

#[test]
fn p40_a_change_with_a_bad_name_is_refused() {
    let driver = Driver::new(|cx: Workflow| async move { cx.patched("").await });
    crate::driver::refused(&driver.failure(), "call name \"\"");
}
