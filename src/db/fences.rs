//! A switch for tests: writers no longer prove that what they write is still theirs. With it on, the chaos tests must
//! turn red, or they would prove nothing. A release build does not have it.

#[cfg(debug_assertions)]
static SKIPPED: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);

/// From now on nothing is proven in this process.
#[cfg(debug_assertions)]
pub fn skip() {
    SKIPPED.store(true, std::sync::atomic::Ordering::Relaxed);
}

#[cfg(debug_assertions)]
pub(super) fn are_skipped() -> bool {
    SKIPPED.load(std::sync::atomic::Ordering::Relaxed)
}

#[cfg(not(debug_assertions))]
pub(super) const fn are_skipped() -> bool {
    false
}
