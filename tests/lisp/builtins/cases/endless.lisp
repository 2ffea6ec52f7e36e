(take 3 (range)) => [0 1 2]
(take 4 (iterate inc 5)) => [5 6 7 8]
(take 3 (repeat :x)) => [:x :x :x]
(take 5 (cycle [1 2])) => [1 2 1 2 1]
(take 2 (repeatedly (fn [] 7))) => [7 7]
(take 0 (range)) => []
(cycle []) => []
(take-while (fn [x] (< x 100)) (iterate (fn [x] (* 2 x)) 1)) => [1 2 4 8 16 32 64]
(first (range)) => 0
(second (iterate inc 5)) => 6
(nth (range) 7) => 7
(map (fn [i x] [i x]) (range) [:a]) => [[0 :a]]
(take 2 (drop 3 (range))) => [3 4]
(map inc (take 2 (range))) => [1 2]
(some (fn [x] (when (> x 3) x)) (range)) => 4
(map vector (range) [:a :b]) => [[0 :a] [1 :b]]
(map + [1 2] (repeat 10)) => [11 12]
(zipmap [:a :b] (range)) => {:a 0 :b 1}
(zip (range) "ab") => [[0 "a"] [1 "b"]]
(interleave [1 2] (repeat 0)) => [1 0 2 0]
(map + (range) (range)) !! map: the sequence has no end
(reduce + (range)) !! reduce: the sequence has no end
(count (range)) !! count: expects a collection or string
(vec (repeat 1)) !! vec: the sequence has no end
(into [] (range)) !! into: the sequence has no end
(iterate 5 0) !! not callable
(repeatedly inc) !! expects 1 argument, got 0
(cycle 5) !! cycle: expects a collection
(zip (range)) !! zip: the sequence has no end
(take 2 (map inc (range))) !! map: the sequence has no end
(first (filter (fn [x] (> x 5)) (range))) !! filter: the sequence has no end
(remove even? (range)) !! remove: the sequence has no end
(for [x (range)] x) !! the sequence has no end
(count (range)) !! count: expects a collection or string, got an endless sequence
(+ 1 (repeat 1)) !! +: expects numbers, got an endless sequence
(:a (iterate inc 0)) !! cannot look up :a in an endless sequence
(let [[a b] (range)] a) !! a vector pattern needs a vector, got an endless sequence
(type (range)) => :endless-sequence
