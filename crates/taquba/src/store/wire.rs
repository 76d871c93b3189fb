//! The alphabet of every stored value: variable-length numbers, length-prefixed bytes, and a reader that never runs
//! past its input and never allocates more than it.

use bytes::Bytes;

/// What a reader found wrong, in words.
pub(crate) type Malformed = &'static str;

/// Appends `value` in 7-bit groups, lowest first.
pub(crate) fn put_u64(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(low_byte(value) | 0x80);
        value >>= 7;
    }
    out.push(low_byte(value));
}

fn low_byte(value: u64) -> u8 {
    value.to_le_bytes()[0] & 0x7f
}

/// Appends a length and the bytes.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_u64(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads what the functions above wrote, front to back, sharing the input's memory.
#[derive(Debug, Clone)]
pub(crate) struct Reader {
    rest: Bytes,
}

impl Reader {
    pub(crate) fn new(bytes: Bytes) -> Self {
        Self { rest: bytes }
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        let byte = *self.rest.first().ok_or("it ends early")?;
        let _ = self.rest.split_to(1);
        Ok(byte)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Malformed> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.u8()?;
            let bits = u64::from(byte & 0x7f);
            let shifted = bits << shift;
            if shifted >> shift != bits {
                return Err("a number overflows");
            }
            value |= shifted;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number is too long")
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.u64()?).map_err(|_| "a number overflows")
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<Bytes, Malformed> {
        if len > self.rest.len() {
            return Err("it ends early");
        }
        Ok(self.rest.split_to(len))
    }

    /// A fixed number of bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.as_ref().try_into().map_err(|_| "it ends early")
    }

    pub(crate) fn bytes(&mut self) -> Result<Bytes, Malformed> {
        let len = usize::try_from(self.u64()?).map_err(|_| "a length overflows")?;
        self.take(len)
    }

    pub(crate) fn text(&mut self) -> Result<String, Malformed> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| "a text is not UTF-8")
    }

    /// What is left, whole.
    pub(crate) fn rest(self) -> Bytes {
        self.rest
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Refuses left-over bytes.
    pub(crate) fn end(self) -> Result<(), Malformed> {
        if self.is_empty() { Ok(()) } else { Err("it goes on past its end") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back_and_short_input_is_refused() {
        for value in [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX] {
            let mut out = Vec::new();
            put_u64(&mut out, value);
            assert_eq!(Reader::new(out.clone().into()).u64(), Ok(value));
            out.pop();
            assert!(Reader::new(out.into()).u64().is_err());
        }
        assert!(Reader::new(Bytes::from(vec![0xff; 11])).u64().is_err());
        assert!(Reader::new(Bytes::from_static(&[9, 1])).bytes().is_err());
    }
}
