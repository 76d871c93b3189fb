//! Where in the inbox what lies: `{inbox}/v1/{queue}/{kind}/{ULID}.{id}`, and `{inbox}/touch`.

use ulid::Ulid;

use super::entry::{EntryKind, PendingEntry};
use crate::limits::MAX_QUEUE_NAME_LEN;
use crate::object_store::ObjectMeta;
use crate::object_store::path::Path;

/// An inbox's folder.
#[derive(Debug, Clone)]
pub(crate) struct Folder {
    root: Path,
}

impl Folder {
    pub(crate) fn new(path: &str) -> Self {
        Self { root: Path::from(path) }
    }

    /// What senders overwrite when they have sent.
    pub(crate) fn touch(&self) -> Path {
        self.root.clone().join("touch")
    }

    /// Where all entries are.
    pub(crate) fn entries(&self) -> Path {
        self.root.clone().join("v1")
    }

    /// Where the entries of a queue are.
    pub(crate) fn queue(&self, queue: &str) -> Path {
        self.entries().join(escape(queue))
    }

    /// An entry's object.
    pub(crate) fn entry(&self, queue: &str, kind: &EntryKind, order: Ulid, id: &str) -> Path {
        self.queue(queue).join(kind.as_str()).join(format!("{order}.{id}"))
    }

    /// What an object is; `None` when no queue could have it for an entry.
    pub(crate) fn parse(&self, meta: &ObjectMeta) -> Option<PendingEntry> {
        let parts: Vec<_> = meta.location.prefix_match(&self.entries())?.collect();
        let [queue, kind, name] = parts.as_slice() else { return None };
        let queue = unescape(queue.as_ref())?;
        let (order, id) = match name.as_ref().split_once('.') {
            Some((order, id)) => match Ulid::from_string(order) {
                Ok(order) => (Some(order), id),
                Err(_) => (None, name.as_ref()),
            },
            None => (None, name.as_ref()),
        };
        Some(PendingEntry {
            queue,
            kind: EntryKind::of_folder(kind.as_ref()),
            id: id.to_owned(),
            order,
            size: meta.size,
            at: meta.location.clone(),
        })
    }
}

/// A queue's name as that of a folder: letters, digits, `.` (not at the start), `_` and `-` as they are, each other byte as
/// `=` and two digits, an empty name as `=`. Object stores and file systems agree on these.
fn escape(queue: &str) -> String {
    if queue.is_empty() {
        return "=".to_owned();
    }
    let mut out = String::with_capacity(queue.len());
    for (index, byte) in queue.bytes().enumerate() {
        let plain =
            byte.is_ascii_alphanumeric() || b"_-".contains(&byte) || (byte == b'.' && index > 0);
        match plain {
            true => out.push(char::from(byte)),
            false => out.push_str(&format!("={byte:02X}")),
        }
    }
    out
}

/// The name that [`escape`] made this of; `None` when it made it of none.
fn unescape(folder: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(folder.len());
    let mut rest = folder.as_bytes();
    if folder == "=" {
        rest = &[];
    }
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'=' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
        rest = after;
    }
    let queue = String::from_utf8(bytes).ok()?;
    // One queue has one folder, so that its entries have one order.
    (queue.len() <= MAX_QUEUE_NAME_LEN && escape(&queue) == folder).then_some(queue)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(path: &str) -> ObjectMeta {
        let location = Path::parse(path).unwrap();
        ObjectMeta {
            location,
            last_modified: chrono::DateTime::UNIX_EPOCH,
            size: 3,
            e_tag: None,
            version: None,
        }
    }

    #[test]
    fn entries_have_these_names_and_come_back_from_them() {
        let folder = Folder::new("shop/jobs-inbox");
        assert_eq!(folder.touch().as_ref(), "shop/jobs-inbox/touch");
        let order = Ulid::from_parts(300, 9);
        let at = folder.entry("mail", &EntryKind::Enqueue, order, "a-1");
        assert_eq!(at.as_ref(), "shop/jobs-inbox/v1/mail/enqueue/000000009C0000000000000009.a-1");
        for (queue, shown) in [
            ("mail", "mail"),
            ("", "="),
            ("a/b c.d_e-f", "a=2Fb=20c.d_e-f"),
            ("..", "=2E."),
            ("=", "=3D"),
            ("ä%", "=C3=A4=25"),
        ] {
            let at = folder.entry(queue, &EntryKind::Signal, order, "x");
            assert_eq!(at.parts().nth(3).unwrap().as_ref(), shown);
            let entry = folder.parse(&meta(at.as_ref())).unwrap();
            assert_eq!((entry.queue(), entry.id(), entry.kind()), (queue, "x", &EntryKind::Signal));
            assert_eq!((entry.order, entry.sent_at_ms(), entry.size()), (Some(order), 300, 3));
        }
    }

    #[test]
    fn what_no_sender_names_so_is_told_apart_or_left_alone() {
        let folder = Folder::new("i");
        let entry = |path: &str| folder.parse(&meta(path));
        for nobody in ["i/v1/q/enqueue", "i/v1/q/enqueue/a/b", "i/v1/=2f/cancel/x", "i/v1/=4/x/y"] {
            assert_eq!(entry(nobody), None, "{nobody}");
        }
        let odd = entry("i/v1/q/fly/no-order").unwrap();
        assert_eq!((odd.order, odd.id()), (None, "no-order"));
        assert_eq!(odd.kind(), &EntryKind::Unknown("fly".into()));
        assert_eq!(entry("i/v1/q/cancel/x.y").unwrap().id(), "x.y");
    }
}
