(into {} (map (fn [[k v]] [k (count v)])) {:a [1 2] :b [3]}) => {:a 2 :b 1}
(into [] (comp (filter odd?) (map inc) (take 2)) [1 2 3 4 5]) => [2 4]
(into #{} (mapcat :tags) [{:tags [1 2]} {:tags [2]}]) => #{1 2}
(into [0] (remove even?) nil) => [0]
(into [] (comp (map inc) cat) [1]) !! cat: expects a collection, got an integer
(into [] (comp cat (map inc)) [[1] [2]]) => [2 3]
(into [] (distinct) [1 1 2]) => [1 2]
(into [] (dedupe) [1 1 2 1]) => [1 2 1]
(into [] (keep :a) [{:a 1} {}]) => [1]
(into [] (map-indexed vector) [:a]) => [[0 :a]]
(into [] (keep-indexed (fn [i x] (when (odd? i) x))) [1 2]) => [2]
(into [] (drop 1) [1 2]) => [2]
(into [] (take-while odd?) [1 2 3]) => [1]
(into [] (drop-while odd?) [1 2 3]) => [2 3]
(into [] (take-nth 2) [1 2 3]) => [1 3]
(into [] (partition-all 2) [1 2 3]) => [[1 2] [3]]
(into [] (partition-by odd?) [1 3 2]) => [[1 3] [2]]
(into [] (interpose 0) [1 2]) => [1 0 2]
(into [] inc [1]) !! inc: expects a number, got a vector
(into [] count [1]) !! into: expects a pipeline
(into [] 5 [1]) !! not callable
(transduce (map inc) + 0 [1 2]) => 5
(transduce (map inc) + [1 2]) => 5
(transduce (comp (filter :on) (map :n)) + 0 [{:on true :n 2} {:n 3}]) => 2
(transduce (map inc) conj [] nil) => []
(transduce (map inc) (fn [a x] (if (> x 2) (reduced a) (+ a x))) 0 [0 1 2 3]) => 3
(transduce 5 + 0 [1]) !! not callable
(sequence (map inc) [1 2]) => [2 3]
(sequence [1 2]) => [1 2]
(sequence (filter odd?) nil) => []
(sequence (map inc) 5) !! map: expects a collection
(eduction (map inc) [1]) => [2]
(eduction (comp (map inc) (map str)) [1]) => ["2"]
(eduction (take 1) 5) !! take: expects a collection
(cat [[1] nil #{2}]) => [1 2]
(cat nil) => []
(cat [1]) !! cat: expects a collection
((map inc) [1 2]) => [2 3]
(fn? (map inc)) => true
(count (filter even?)) !! count: expects a collection or string, got a function
