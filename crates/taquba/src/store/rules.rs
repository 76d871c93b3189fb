//! The bytes of what is special about one job, inside its record.

use super::wire::{Malformed, Reader, put_u64};
use crate::lifecycle::job::Rules;
use crate::retry::{Delays, MAX_DELAYS, RetryPolicy};

const HAS_EXPONENTIAL: u8 = 1;
const HAS_LIST: u8 = 2;
const HAS_MAX_RUN: u8 = 4;
const HAS_EXPIRE_AT: u8 = 8;

/// Appends the rules.
pub(super) fn encode(rules: &Rules, out: &mut Vec<u8>) {
    let retry = match rules.retry.as_ref().map(|retry| &retry.delays) {
        None => 0,
        Some(Delays::Exponential { .. }) => HAS_EXPONENTIAL,
        Some(Delays::List(_)) => HAS_LIST,
    };
    let max_run = if rules.max_run_ms.is_some() { HAS_MAX_RUN } else { 0 };
    let expire_at = if rules.expire_at.is_some() { HAS_EXPIRE_AT } else { 0 };
    out.push(retry | max_run | expire_at);
    if let Some(retry) = &rules.retry {
        out.push(retry.jitter_percent);
        match &retry.delays {
            Delays::Exponential { base_ms, max_ms } => {
                put_u64(out, *base_ms);
                put_u64(out, *max_ms);
            }
            Delays::List(delays) => {
                put_u64(out, delays.len() as u64);
                delays.iter().for_each(|delay| put_u64(out, *delay));
            }
        }
    }
    for number in [rules.max_run_ms, rules.expire_at].into_iter().flatten() {
        put_u64(out, number);
    }
}

/// Reads the rules.
pub(super) fn decode(r: &mut Reader) -> Result<Rules, Malformed> {
    let flags = r.u8()?;
    let retry = match flags & (HAS_EXPONENTIAL | HAS_LIST) {
        0 => None,
        HAS_EXPONENTIAL => {
            let jitter_percent = r.u8()?;
            let delays = Delays::Exponential { base_ms: r.u64()?, max_ms: r.u64()? };
            Some(RetryPolicy { delays, jitter_percent })
        }
        HAS_LIST => {
            let (jitter_percent, count) = (r.u8()?, r.u64()?);
            if count > MAX_DELAYS as u64 {
                return Err("its list of delays is too long");
            }
            let delays = (0..count).map(|_| r.u64()).collect::<Result<_, _>>()?;
            Some(RetryPolicy { delays: Delays::List(delays), jitter_percent })
        }
        _ => return Err("it has two retry policies"),
    };
    let max_run_ms = if flags & HAS_MAX_RUN == 0 { None } else { Some(r.u64()?) };
    let expire_at = if flags & HAS_EXPIRE_AT == 0 { None } else { Some(r.u64()?) };
    Ok(Rules { retry, max_run_ms, expire_at })
}
