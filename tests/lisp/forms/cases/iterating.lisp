; going through collections
(for [x [1 2 3]] (* x x)) => [1 4 9]
(for [x [1 2] y [:a :b]] [x y]) => [[1 :a] [1 :b] [2 :a] [2 :b]]
(for [x [1 2 3 4] :when (even? x)] x) => [2 4]
(for [x [1 2 3 4] :while (< x 3)] x) => [1 2]
(for [x [1 2 3] :let [y (* x 10)] :when (> y 10)] y) => [20 30]
(for [x [1 2 3] y [1 2 3] :while (< y x)] [x y]) => [[2 1] [3 1] [3 2]]
(for [[k v] {:b 2 :a 1}] [k v]) => [[:a 1] [:b 2]]
(for [x []] x) => []
(for [x nil] x) => []
(for [x "ab"] x) => ["a" "b"]
(map (fn [f] (f)) (for [x [1 2]] (fn [] x))) => [1 2]
(doseq [x [1 2 3]] (memory/put :last x)) memory/last => 3
(doseq [x [1]] x) => nil
(doseq [x [1 2] y [10 20] :when (odd? x)] (memory/put :sum (+ x y))) memory/sum => 21
(dotimes [i 3] (memory/put :i i)) memory/i => 2
(dotimes [i 0] (throw "never")) => nil
(dotimes [_ 2] 1) => nil
(map (fn [x] (map (fn [y] (* x y)) [1 2])) [1 2]) => [[1 2] [2 4]]
(map (fn [x] (let [y (inc x)] (* y y))) [1 2]) => [4 9]
(filter (fn [x] (let [y (inc x)] (even? y))) [1 2 3]) => [1 3]
(remove (fn [x] (let [y (inc x)] (even? y))) [1 2 3]) => [2]
(remove (fn [x] (> x 1)) [1 2 3]) => [1]
(reduce (fn [a x] (if (> x 2) (reduced a) (+ a x))) 0 [1 2 3 4]) => 3
(reduce (fn [a x] (let [y (* x x)] (conj a y))) [] [1 2 3]) => [1 4 9]
(map (fn [x] (try (/ 1 x) (catch e :none))) [1 0]) => [1.0 :none]
(for [x]) !! analysis_error 1:1 for needs a body
(for [x] x) !! analysis_error 1:6 bindings need pairs
(for [:when true] 1) !! analysis_error 1:7 the first binding names a collection
(for [x [1] :until true] x) !! analysis_error 1:13 unknown :until
(for [x [1] :let y] x) !! analysis_error 1:18 :let needs a vector
(for [x 5] x) !! eval_error 1:1 for: expects a collection
(dotimes [i "a"] i) !! eval_error 1:1 dotimes expects an integer
