//! Whether a call brings a signal.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use super::{SignalMask, checked};

/// Whether a call brings this thread a signal, which then does nothing else. Before and after, the process treats the signal as it did.
pub(super) fn is_signalled(signal: libc::c_int, call: impl FnOnce()) -> io::Result<bool> {
    static CALLING: Mutex<()> = Mutex::new(());
    static CAME: AtomicBool = AtomicBool::new(false);
    extern "C" fn came(_: libc::c_int) {
        CAME.store(true, Ordering::SeqCst);
    }
    let _only = CALLING.lock().unwrap_or_else(PoisonError::into_inner);
    CAME.store(false, Ordering::SeqCst);
    let (handler, only) = (came as extern "C" fn(libc::c_int), SignalMask::of(&[signal]));
    let (mut mask, mut action) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: all pointers are valid for their calls, and the kernel fills `action` and `mask` if the calls succeed. Zeros are a valid
    // action, without flags. The handler only stores to an atomic, which is safe at any moment and in any thread.
    unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = handler as libc::sighandler_t;
        checked(libc::sigaction(signal, &raw const new, action.as_mut_ptr()))?;
        let unblocked = libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const only.0, mask.as_mut_ptr());
        if unblocked == 0 {
            call();
            libc::pthread_sigmask(libc::SIG_SETMASK, mask.as_ptr(), std::ptr::null_mut());
        }
        checked(libc::sigaction(signal, action.as_ptr(), std::ptr::null_mut()))?;
        if unblocked != 0 {
            return Err(io::Error::from_raw_os_error(unblocked));
        }
    }
    Ok(CAME.load(Ordering::SeqCst))
}
