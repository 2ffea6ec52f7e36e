"""Random expressions that are programs of the mission language and of Clojure."""

from collections.abc import Iterator
from random import Random

# Templates by the kind of their value; a word in angle brackets is replaced by an expression of that kind.
TEMPLATES: dict[str, str] = {
    "int": """
        (+ <int> <int>) | (- <int> <int>) | (* <int> <int>) | (inc <int>) | (dec <int>) | (- <int>)
        (+ <int> <int> <int>) | (max <int> <int>) | (min <int> <int>) | (quot <int> <n>) | (mod <int> <n>)
        (rem <int> <n>) | (count <ints>) | (count <map>) | (count <str>) | (reduce + <ints>)
        (reduce + 0 <ints>) | (reduce max 0 <ints>) | (apply + <ints>)
        (reduce (fn [a x] (+ a (* 2 x))) 0 <ints>) | (or (first <ints>) 0) | (or (last <ints>) 0)
        (get <map> :a 0) | (:b <map> 0) | (nth <ints> <n> 0) | (if <bool> <int> <int>)
        (let [x <int> y (inc x)] (* x y)) | (-> <int> inc (* 2)) | (->> <ints> (map inc) (reduce +))
        (cond <bool> <int> :else <int>) | (if-let [x <maybe>] 1 0)
        (loop [n <n> acc 0] (if (zero? n) acc (recur (dec n) (+ acc n)))) | (case <int> 1 10 2 20 (3 4) 30 0)
        (if-not <bool> <int> <int>) | ((fn [x & more] (+ x (count more))) <int> <int> <int>)
        (#(+ % %2) <int> <int>) | ((comp inc inc) <int>) | ((partial + 10) <int>) | (condp = <int> 1 10 2 20 30)
        (do <int> <int>) | (as-> <int> x (+ x 1) (* x x)) | (cond-> <int> <bool> inc <bool> (* 2))
        (compare <int> <int>) | (abs <int>) | (compare <str> <str>) | (get-in {:a {:b <int>}} [:a :b])
        (transduce (comp (map inc) (filter even?)) + 0 <ints>)
        (count (distinct <ints>)) | (count <strs>)""",
    "bool": """
        (< <int> <int>) | (<= <int> <int> <int>) | (= <int> <int>) | (not= <int> <int>) | (= <ints> <ints>)
        (= <map> <map>) | (even? <int>) | (odd? <int>) | (zero? <int>) | (pos? <int>) | (neg? <int>)
        (empty? <ints>) | (empty? <map>) | (nil? <maybe>) | (some? <maybe>) | (every? even? <ints>)
        (not-any? odd? <ints>) | (not <bool>) | (contains? <map> <kw>) | (boolean <maybe>) | (str/blank? <str>)
        (str/starts-with? <str> "a") | (str/includes? <str> "b") | (= <str> <str>) | (str/ends-with? <str> "c")
        (string? <maybe>) | (map? <map>) | (keyword? <kw>) | (number? <maybe>) | (fn? inc)
        (contains? (set <ints>) <int>) | (true? <bool>) | (coll? <map>) | ((every-pred pos? even?) <int>)
        ((complement even?) <int>) | (vector? [<int>]) | (set? #{1}) | (int? <int>) | (not= <str> <str>)""",
    "str": """
        (str <int>) | (str <str> <str>) | (str <kw>) | (str nil) | (str <str> <maybe>) | (str/upper-case <str>)
        (name <kw>) | (str/lower-case <str>) | (str/join "," <ints>) | (str/join <strs>) | (str/trim <str>)
        (subs <str> 0 1) | (pr-str <map>) | (str/replace <str> "a" "xy") | (apply str <strs>)
        (str/capitalize <str>) | (pr-str <str>) | (str/reverse <str>) | (if <bool> <str> <str>)
        (or (first <strs>) "") | (str [<int> <str>]) | (str/replace <str> #"[ab]" "_")
        (str/join ", " (map str/upper-case <strs>)) | (str/replace-first <str> "b" "z")
        (when-let [x <str>] (str x "!"))""",
    "ints": """
        [<int> <int> <int>] | [<int>] | [] | (map inc <ints>) | (filter even? <ints>) | (remove odd? <ints>)
        (take <n> <ints>) | (drop <n> <ints>) | (sort <ints>) | (reverse <ints>) | (distinct <ints>)
        (concat <ints> <ints>) | (conj [1 2] <int>) | (cons <int> <ints>) | (rest <ints>) | (vec <ints>)
        (range <n>) | (map + <ints> <ints>) | (mapv #(* % %) <ints>) | (interleave <ints> <ints>)
        (flatten [<ints> [<int>]]) | (take-while pos? <ints>) | (drop-while pos? <ints>) | (sort > <ints>)
        (sort-by - <ints>) | (for [x <ints> :when (even? x)] (* x x)) | (into [] <ints>) | (repeat <n> <int>)
        (for [x <ints> y [1 2]] (+ x y)) | (mapcat (fn [x] [x x]) <ints>) | (map-indexed + <ints>)
        (reductions + 0 <ints>) | (take-last <n> <ints>) | (drop-last <n> <ints>) | (vals {:a <int>})
        (keep #(when (even? %) %) <ints>) | (range 1 <n>) | (replace {1 2, 2 4} <ints>)
        (dedupe <ints>) | (interpose 0 <ints>) | (list <int> <int>)
        (sequence (comp (map inc) (filter even?)) <ints>) | (subvec [1 2 3 4 5] <n>) | (next <ints>)
        (butlast <ints>) | (take-nth 2 <ints>) | (keys {1 2}) | (vec (sort (set <ints>)))
        (map (fn [[k v]] v) {:a <int>}) | (seq <ints>) | (map first (partition 2 [1 2 3 4 <int>]))
        (into [<int>] <ints>) | (mapcat identity [<ints> <ints>]) | (map count (partition-all 2 <ints>))
        (assoc [1 2 3] 1 <int>) | (nthrest <ints> <n>)""",
    "strs": """
        [<str> <str>] | (map str <ints>) | (str/split "a,b,c" #",") | (sort ["b" "a" <str>])
        (map name [<kw> <kw>]) | (re-seq #"[a-c]" <str>) | (map str/upper-case <strs>)
        (str/split-lines "a\\nb") | (filter seq <strs>) | (map :name [{:name <str>}]) | (distinct <strs>)
        (map str <str>)""",
    "map": """
        {:a <int>} | {:a <int> :b <int>} | {} | (assoc <map> <kw> <int>) | (dissoc <map> <kw>)
        (merge <map> <map>) | (update <map> :a (fnil inc 0)) | (select-keys <map> [:a :c])
        (zipmap [:a :b] <ints>) | (into {} [[:a <int>]]) | (merge-with + <map> <map>)
        (reduce (fn [m x] (assoc m <kw> x)) {} <ints>) | (update-vals <map> inc)
        (into {} (map (fn [[k v]] [k (inc v)]) <map>)) | (set/rename-keys <map> {:a :c})
        (into {} (filter (fn [[k v]] (pos? v)) <map>)) | (reduce-kv (fn [m k v] (assoc m k (* 2 v))) {} <map>)
        (assoc <map> :a 1 :b <int>) | (into <map> {:z <int>})""",
    "maybe": """
        (first <ints>) | (last <ints>) | (second <ints>) | (get <map> <kw>) | (:c <map>) | (some even? <ints>)
        (not-empty <ints>) | (when <bool> <int>) | (and <bool> <int>) | (or nil <int>) | (re-find #"b+" <str>)
        (first <strs>) | (some #{1 2} <ints>) | (:a <str>) | (get <ints> <n>) | (<kw> <map>) | (<map> <kw>)
        (some-> <map> :a inc) | (get nil :a) | (peek [<int>]) | (when-let [x (first <ints>)] (inc x))
        (first <map>) | (seq <map>) | (next <ints>) | (keyword <str>) | (if <bool> <int>) | (parse-long <str>)
        (if-some [x (first <ints>)] x 0) | (ffirst [[<int>]]) | (keys <map>)""",
    "any": """
        <int> | <bool> | <str> | <ints> | <strs> | <map> | <maybe> | (frequencies <ints>)
        (group-by even? <ints>) | (set <ints>) | (set/union (set <ints>) #{1 2})
        (set/intersection (set <ints>) #{1 2 3}) | (set/difference #{1 2 3} (set <ints>)) | (partition 2 <ints>)
        (partition-by even? <ints>) | (split-at <n> <ints>) | (split-with pos? <ints>)
        (map vector <ints> <strs>) | (let [[a b] <ints>] [a b]) | (let [[a & more] <ints>] [a more])
        (let [{:keys [a b] :or {b 7}} <map>] [a b]) | (let [{x :a :as m} <map>] [x (count m)])
        ((juxt count first) <ints>) | (map #(vector % (* % %)) <ints>) | (vec <map>)
        (assoc-in <map> [:x :y] <int>) | (update-in <map> [:x] (fnil conj []) <int>)
        (sort-by count [<ints> <ints>]) | (into #{} <ints>) | (sort [[<int> 2] [<int>]])
        (set/map-invert <map>) | (group-by count <strs>) | (apply map vector [<ints> <ints>])
        (sort-by :a [{:a <int>} {:a <int>}]) | (apply max 0 <ints>)
        (reduce (fn [m [k v]] (assoc m v k)) {} <map>) | (mapv (fn [{:keys [a]}] a) [<map> <map>])
        (conj #{1} <int>) | (conj {:a 1} [:b <int>]) | (map (fn [x] {:n x}) <ints>) | (frequencies <strs>)
        (zipmap <ints> <strs>)""",
}
LITERALS = {
    "int": ["0", "1", "2", "3", "-1", "-4", "7", "10", "25"],
    "n": ["1", "2", "3", "4"],
    "bool": ["true", "false"],
    "str": ['"abc"', '"a b"', '""', '"Ada"', '"12"', '"bbc"'],
    "kw": [":a", ":b", ":c", ":x/y"],
    "ints": ["[1 2 3]", "[]", "[4 -1 4]", "[10 7 2 2]"],
    "strs": ['["a" "b"]', "[]", '["x" "" "ab"]'],
    "map": ["{}", "{:a 1}", "{:a 3 :b -2}", "{:b 5 :c 6}"],
    "maybe": ["nil", "0", "false", '"a"', "[]"],
    "any": ["nil"],
}


def alternatives(kind: str) -> list[str]:
    """Return the templates of a kind."""
    lines = TEMPLATES.get(kind, "").strip().splitlines()
    return [each.strip() for line in lines for each in line.split(" | ") if each.strip()]


def expressions(seed: int, count: int) -> Iterator[str]:
    """Yield different expressions; each template comes at the top once before they are drawn."""
    random = Random(seed)
    tops = [each for kind in TEMPLATES for each in alternatives(kind)]
    random.shuffle(tops)
    seen: set[str] = set()
    while len(seen) < count:
        top = tops.pop() if tops else random.choice(alternatives(random.choice(list(TEMPLATES))))
        made = _filled(random, top, depth=2)
        if made not in seen:
            seen.add(made)
            yield made


def _filled(random: Random, template: str, depth: int) -> str:
    parts = template.split("<")
    made = [parts[0]]
    for part in parts[1:]:
        kind, closed, rest = part.partition(">")
        if not closed or kind not in LITERALS:
            made.append(f"<{part}")
            continue
        options = alternatives(kind)
        deeper = depth and options and random.random() < 0.6
        made.append(_filled(random, random.choice(options), depth - 1) if deeper else random.choice(LITERALS[kind]))
        made.append(rest)
    return "".join(made)
