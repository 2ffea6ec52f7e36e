; a value handed from step to step
(-> 1 inc (+ 10)) => 12
(-> {:a {:b 1}} :a :b) => 1
(-> 5) => 5
(-> [3 1 2] sort first) => 1
(-> 1 inc inc inc inc inc inc) => 7
(-> 3 (fn [x] (* x x))) => 9
(-> 2 #(* % 5)) => 10
(->> [1 2 3] (map inc) (filter even?)) => [2 4]
(->> 10 (- 1)) => -9
(->> [1 2 3 4 5 6] (map inc) (filter even?) (map dec) (remove (fn [x] (> x 4))) (reduce +)) => 4
(some-> {:a {:b 1}} :a :b inc) => 2
(some-> {:a nil} :a inc) => nil
(some-> 5) => 5
(some->> [1 2] (map inc)) => [2 3]
(some->> nil (map inc)) => nil
(some->> 5 (- 10)) => 5
(cond-> 1 true inc false (* 100) true (* 2)) => 4
(cond-> 1) => 1
(cond-> {:a 1} (= 1 1) (assoc :b 2)) => {:a 1 :b 2}
(cond->> [1 2 3] true (map inc) false (filter odd?)) => [2 3 4]
(cond->> 5 true (- 10)) => 5
(cond->> 5) => 5
(as-> 1 x (+ x 1) [x x]) => [2 2]
(as-> {:a 1} $ (:a $) (* $ 10)) => 10
(as-> 5 x) => 5
(->) !! analysis_error 1:1 -> needs a value
(some->) !! analysis_error 1:1 some-> needs a value
(cond-> 1 true) !! analysis_error 1:1 cond-> needs a value and pairs
(as-> 1) !! analysis_error 1:1 as-> needs a value and a name
(as-> 1 5 6) !! analysis_error 1:9 expected a name
(-> 1 nil) !! eval_error 1:7 not callable: nil is not a function
(-> [1 2] (map inc)) !! eval_error 1:11 map: expects
