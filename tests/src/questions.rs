//! Sixty everyday questions, and an order for each seed.

/// The questions are what people ask a small assistant on an ordinary day.
pub const QUESTIONS: [&str; 60] = [
    "What is the capital of France?",
    "How do I boil an egg?",
    "Why is the sky blue?",
    "What does a librarian do?",
    "How can I sleep better at night?",
    "What is the difference between weather and climate?",
    "How do plants make food?",
    "Why do cats purr?",
    "What is a good breakfast?",
    "How do I remove a coffee stain from a shirt?",
    "What causes the tides?",
    "How often should I water a cactus?",
    "What is inflation?",
    "Why do leaves change colour in autumn?",
    "How does a bicycle stay upright?",
    "What is the purpose of a passport?",
    "How do I write a thank-you note?",
    "Why do we yawn?",
    "What is a balanced diet?",
    "How does a microwave oven heat food?",
    "What should I pack for a day at the beach?",
    "How do bees make honey?",
    "What is the largest ocean on Earth?",
    "How can I save money on groceries?",
    "Why is exercise good for the heart?",
    "What is the water cycle?",
    "How do I keep bread fresh?",
    "What does a plumber do?",
    "Why do we have leap years?",
    "How do airplanes fly?",
    "What is photosynthesis?",
    "How can I learn a new language?",
    "What makes a good friend?",
    "How do I clean a window without streaks?",
    "Why do onions make you cry?",
    "What is a budget?",
    "How does a refrigerator work?",
    "What is the best way to study for a test?",
    "Why do dogs wag their tails?",
    "How do I plan a birthday party?",
    "What is recycling?",
    "How do I tie a tie?",
    "Why is sleep important?",
    "What is the moon made of?",
    "How does soap clean hands?",
    "What should I do if I lose my keys?",
    "How do fish breathe under water?",
    "What is gravity?",
    "How can I be more polite?",
    "Why do we need vitamins?",
    "What is a rainbow?",
    "How do I make a cup of tea?",
    "What does a dentist do?",
    "How do magnets work?",
    "Why does ice float?",
    "What is a healthy snack?",
    "How do I start a small garden?",
    "What is the speed of light?",
    "How do I calm down when I am angry?",
    "Why do birds migrate?",
];

/// Returns the questions in the order of `seed`: Fisher-Yates with `SplitMix64`.
pub fn shuffled(seed: u64) -> Vec<&'static str> {
    let mut order = QUESTIONS.to_vec();
    let mut state = seed;
    for i in (1..order.len()).rev() {
        let j = split_mix(&mut state) % (i as u64 + 1);
        order.swap(i, usize::try_from(j).expect("below 60"));
    }
    order
}

/// Returns the next number of Vigna's `SplitMix64`.
pub fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
