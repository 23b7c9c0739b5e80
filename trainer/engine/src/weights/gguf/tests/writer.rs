/// Writes GGUF according to the format, to test the reader.
#[derive(Default)]
pub(super) struct Gguf {
    meta: Vec<u8>,
    n_meta: u64,
    table: Vec<u8>,
    n_tensors: u64,
    pub(super) data: Vec<u8>,
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

impl Gguf {
    pub(super) fn key(&mut self, key: &str, kind: u32) -> &mut Vec<u8> {
        self.n_meta += 1;
        text(&mut self.meta, key);
        self.meta.extend(kind.to_le_bytes());
        &mut self.meta
    }

    pub(super) fn int(&mut self, key: &str, value: i64) {
        let value = u32::try_from(value).unwrap();
        self.key(key, 4).extend(value.to_le_bytes());
    }

    pub(super) fn text(&mut self, key: &str, value: &str) {
        text(self.key(key, 8), value);
    }

    pub(super) fn texts(&mut self, key: &str, values: &[String]) {
        let out = self.key(key, 9);
        out.extend(8_u32.to_le_bytes());
        out.extend((values.len() as u64).to_le_bytes());
        values.iter().for_each(|value| text(out, value));
    }

    pub(super) fn ints(&mut self, key: &str, values: &[i32]) {
        let out = self.key(key, 9);
        out.extend(5_u32.to_le_bytes());
        out.extend((values.len() as u64).to_le_bytes());
        values
            .iter()
            .for_each(|value| out.extend(value.to_le_bytes()));
    }

    pub(super) fn tensor(&mut self, name: &str, shape: &[i64], kind: u32, values: &[f32]) {
        self.n_tensors += 1;
        text(&mut self.table, name);
        self.table.extend((shape.len() as u32).to_le_bytes());
        shape
            .iter()
            .rev()
            .for_each(|side| self.table.extend(side.to_le_bytes()));
        self.table.extend(kind.to_le_bytes());
        self.table.extend((self.data.len() as u64).to_le_bytes());
        values
            .iter()
            .for_each(|value| self.data.extend(value.to_le_bytes()));
        self.data.resize(self.data.len().next_multiple_of(32), 0);
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(3_u32.to_le_bytes());
        out.extend(self.n_tensors.to_le_bytes());
        out.extend(self.n_meta.to_le_bytes());
        out.extend(&self.meta);
        out.extend(&self.table);
        out.resize(out.len().next_multiple_of(32), 0);
        out.extend(&self.data);
        out
    }
}
